# Frozen parameters are not trainable.
module PaddleChainRulesOptimisersExt

using Functors: functor
using Optimisers: Optimisers
using PaddleChainRules: PaddleModuleWrapper

Optimisers.trainable(w::PaddleModuleWrapper) = (; functor(w)[1].params)

end
