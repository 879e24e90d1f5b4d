// Chooses the instruction set at run time.

#include <atomic>
#include <string>
#include <vector>

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

// The variants that this CPU can run, the best first.
std::vector<Kernels> Available() {
  std::vector<Kernels> found;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  // Each CPU with bf16 products has those of bytes.
  if (wide && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni")) {
    found.push_back(GRAPHGEN_KERNELS(avx512_bf16));
  }
  if (wide) found.push_back(GRAPHGEN_KERNELS(avx512));
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    found.push_back(GRAPHGEN_KERNELS(avx2));
  }
#endif
  found.push_back(GRAPHGEN_KERNELS(baseline));
  return found;
}

const std::vector<Kernels>& Variants() {
  static const std::vector<Kernels> variants = Available();
  return variants;
}

std::atomic<const Kernels*> restricted{nullptr};

const Kernels& Chosen() {
  const Kernels* kernels = restricted.load(std::memory_order_acquire);
  return kernels != nullptr ? *kernels : Variants().front();
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

const char* InstructionSets() {
  static const std::string names = [] {
    std::string text;
    for (const Kernels& kernels : Variants()) {
      text += (text.empty() ? "" : " ") + std::string(kernels.name);
    }
    return text;
  }();
  return names.c_str();
}

const char* UseInstructionSet(const char* name) {
  for (const Kernels& kernels : Variants()) {
    if (std::string(kernels.name) == name) restricted.store(&kernels, std::memory_order_release);
  }
  return Chosen().name;
}

}  // namespace graphgen
