// Chooses the instruction set at run time.

#include "attention.h"
#include "linear.h"
#include "norm.h"
#include "rotation.h"
#include "top_k.h"

namespace graphgen {

#define GRAPHGEN_DECLARE(isa)                                          \
  namespace isa {                                                      \
  void RunLinear(const Linear& linear, const TaskPool& pool);          \
  void RunAttention(const Attention& attention, const TaskPool& pool); \
  void RunRotation(const Rotation& rotation, const TaskPool& pool);    \
  void RunNorm(const Norm& norm, const TaskPool& pool);                \
  void RunTopK(const TopK& top_k, const TaskPool& pool);               \
  }

GRAPHGEN_DECLARE(baseline)
#if defined(__x86_64__)
GRAPHGEN_DECLARE(avx2)
GRAPHGEN_DECLARE(avx512)
GRAPHGEN_DECLARE(avx512_bf16)
#endif

namespace {

struct Kernels {
  const char* name;
  void (*linear)(const Linear&, const TaskPool&);
  void (*attention)(const Attention&, const TaskPool&);
  void (*rotation)(const Rotation&, const TaskPool&);
  void (*norm)(const Norm&, const TaskPool&);
  void (*top_k)(const TopK&, const TaskPool&);
};

#define GRAPHGEN_KERNELS(isa) \
  Kernels { \
    #isa, isa::RunLinear, isa::RunAttention, isa::RunRotation, isa::RunNorm, isa::RunTopK \
  }

Kernels Choose() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  // Each CPU with bf16 products has those of bytes.
  if (wide && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni")) {
    return GRAPHGEN_KERNELS(avx512_bf16);
  }
  if (wide) return GRAPHGEN_KERNELS(avx512);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return GRAPHGEN_KERNELS(avx2);
  }
#endif
  return GRAPHGEN_KERNELS(baseline);
}

const Kernels& Chosen() {
  static const Kernels kernels = Choose();
  return kernels;
}

}  // namespace

void RunLinear(const Linear& linear, const TaskPool& pool) { Chosen().linear(linear, pool); }

void RunAttention(const Attention& attention, const TaskPool& pool) {
  Chosen().attention(attention, pool);
}

void RunRotation(const Rotation& rotation, const TaskPool& pool) {
  Chosen().rotation(rotation, pool);
}

void RunNorm(const Norm& norm, const TaskPool& pool) { Chosen().norm(norm, pool); }

void RunTopK(const TopK& top_k, const TaskPool& pool) { Chosen().top_k(top_k, pool); }

const char* InstructionSet() { return Chosen().name; }

}  // namespace graphgen
