// Products in tiles of a matrix unit: compiled once for AMX and once for its emulation, with
// GRAPHGEN_TILES as the namespace. What they do not compute the kernels of an instruction set do.

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstdlib>
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
#include "tile_trial.h"

namespace graphgen {
namespace GRAPHGEN_TILES {

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
#if defined(__AMX_BF16__) && defined(__AMX_INT8__)
#include "tile_instructions_inner.h"
#else
#include "tile_emulation_inner.h"
#endif
#include "tiles_inner.h"
#include "tile_forms_inner.h"
#include "tile_linear_inner.h"
#include "tile_attention_inner.h"

void RunTileTrial(TileTrial* trial) {
  const char* const columns[] = {trial->columns[0], trial->columns[1]};
  const TileScope scope;
  TileBlock<false, 2, 2>(trial->x, TileTrial::kRowBytes, columns, TileTrial::kTiles, trial->sums[0]);
  TileBlock<true, 2, 2>(trial->x, TileTrial::kRowBytes, columns, TileTrial::kTiles, trial->sums[1]);
}

}  // namespace GRAPHGEN_TILES
}  // namespace graphgen
