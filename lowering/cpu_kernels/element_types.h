// Types of elements, and how many of them a vector has.

#ifndef GRAPHGEN_ELEMENT_TYPES_H_
#define GRAPHGEN_ELEMENT_TYPES_H_

#include <cstdint>

namespace graphgen {

// Elements of a vector, and columns of a weight that lie side by side in its packed form.
constexpr int64_t kLanes = 16;

enum class Type { kF32, kBf16, kF16 };

// Bytes of an element.
inline int64_t SizeOf(Type type) { return type == Type::kF32 ? 4 : 2; }

}  // namespace graphgen

#endif  // GRAPHGEN_ELEMENT_TYPES_H_
