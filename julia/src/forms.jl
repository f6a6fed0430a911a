# How public functions are called, for the errors of calls with other arguments.

const FORMS = (
    laplacian = "laplacian(net, x, ps) or laplacian(wrapper, x)",
    derivative = "derivative(net, x, ps, multi_index) or derivative(wrapper, x, multi_index)",
    derivatives = "derivatives(net, x, ps, wanted) or derivatives(wrapper, x, wanted)",
    jvp = "jvp(net, x, ps, ẋ, ṗs) or jvp(wrapper, x, ẋ)",
    vjp = "vjp(net, x, ps, ȳ) or vjp(wrapper, x, ȳ)",
    pullback = "pullback(net, x, ps) or pullback(wrapper, x)",
    explain = "explain(net, x, ps) or explain(wrapper, x)",
    compile = "compile(net, x, ps) or compile(wrapper, x)",
    forward! = "forward!(y, net, x, ps) or forward!(y, wrapper, x)",
    batched_vjp = "batched_vjp(net, x, ps, ȳ) or batched_vjp(wrapper, x, ȳ)",
    batched_jacobian = "batched_jacobian(net, x, ps) or batched_jacobian(wrapper, x)",
    lower = "lower(net, x), lower(net, x, st) or lower(wrapper, x...)",
    save_lowered = "save_lowered(path, lowered, ps) or save_lowered(path, lowered_wrapper)",
    exact_derivative = "exact_derivative(net) or exact_derivative(wrapper)",
    freeze = "freeze(wrapper, names), before it is lowered",
    testmode = "testmode(wrapper) or testmode(net), before it is lowered",
    trainmode = "trainmode(wrapper) or trainmode(net), before it is lowered",
    initial_state = "initial_state(net; seed) or initial_state(wrapper; seed)",
    save_params = "save_params(path, wrapper) or save_params(path, net, ps)",
    load_params = "load_params(path, wrapper) or load_params(path, net)",
    PaddleFCNet = "PaddleFCNet(dim_in, dim_out, num_layers, hidden), four whole numbers",
)

for (name, forms) in pairs(FORMS)
    @eval $name(args...; kw...) = throw(
        ArgumentError(
            $("the call is $forms, got $name(") * join(map(kind_of, args), ", ") * "); give these arguments",
        ),
    )
end
