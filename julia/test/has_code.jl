# Whether nets become machine code that Julia calls, and what is said then.

using PaddleChainRules: PaddleChainRules
using PythonCall: pyconvert

const CODE = "machine code, without Python, on any thread"
const HAS_CODE = PaddleChainRules.crossing(() -> pyconvert(Int, PaddleChainRules.BRIDGE.patience())) >= 0
