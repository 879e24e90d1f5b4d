// The kernels for one instruction set: compiled once each, with GRAPHGEN_ISA as the namespace and
// the compiler's options for it.

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "attention.h"
#include "kept_memory.h"
#include "linear.h"
#include "norm.h"
#include "rotation.h"
#include "top_k.h"

namespace graphgen {
namespace GRAPHGEN_ISA {

// In this order.
#include "vectors.h"
#include "elements_inner.h"
#include "norm_inner.h"
#include "linear_inner.h"
#include "cache_inner.h"
#include "cache_codes_inner.h"
#include "attention_pack_inner.h"
#include "attention_operands_inner.h"
#include "attention_step_inner.h"
#include "attention_inner.h"
#include "entries_inner.h"
#include "rotation_inner.h"
#include "top_k_inner.h"

}  // namespace GRAPHGEN_ISA
}  // namespace graphgen
