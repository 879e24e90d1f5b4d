// A trial of tile products, by which the instructions of a matrix unit are compared with their
// emulation before they are used.

#ifndef GRAPHGEN_TILE_TRIAL_H_
#define GRAPHGEN_TILE_TRIAL_H_

#include <cstdint>

namespace graphgen {

// Two by two tiles of sums, over three tiles of x and of a weight each.
struct TileTrial {
  static constexpr int64_t kTiles = 3, kRowBytes = kTiles * 64, kRows = 32;

  alignas(64) char x[kRows * kRowBytes];
  alignas(64) char columns[2][kTiles * 1024];
  // Of bf16, and of bytes; rows are some vectors apart.
  alignas(64) char sums[2][kRows * 16 * 64];
};

// Computes the sums of a trial.
using RunTrial = void (*)(TileTrial* trial);

#if defined(__x86_64__)
namespace amx {
void RunTileTrial(TileTrial* trial);
}
#endif
namespace amx_emulated {
void RunTileTrial(TileTrial* trial);
}

}  // namespace graphgen

#endif  // GRAPHGEN_TILE_TRIAL_H_
