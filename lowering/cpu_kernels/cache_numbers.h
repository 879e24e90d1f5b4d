// The numbers of caches.

#ifndef GRAPHGEN_CACHE_NUMBERS_H_
#define GRAPHGEN_CACHE_NUMBERS_H_

#include <cstdint>

namespace graphgen {

// Numbers that keys and values are kept as: those of the attention, or 8 bits. kF8E4M3 is Neuron's
// type, with infinities and NaNs in the codes that are numbers from 256 on in kF8E4M3Fn.
enum class CacheNumbers { kPlain, kS8, kF8E4M3, kF8E4M3Fn, kF8E5M2 };

// Factors of the numbers of a cache: of all, of each head, or of each channel of a head.
struct CacheScale {
  const float* data = nullptr;  // none: 1
  int64_t per_head = 0;         // from one head to the next
  int64_t per_channel = 0;      // from one channel to the next
};

}  // namespace graphgen

#endif  // GRAPHGEN_CACHE_NUMBERS_H_
