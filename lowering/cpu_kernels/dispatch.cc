// Chooses the instruction set at run time.

#include <atomic>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "attention.h"
#include "linear.h"
#include "matrix_unit.h"
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
#elif defined(__aarch64__)
GRAPHGEN_DECLARE(neon_dotprod)
GRAPHGEN_DECLARE(neon_bf16)
#endif

// Of a matrix unit: false for what it does not compute.
#define GRAPHGEN_DECLARE_TILES(unit)                                   \
  namespace unit {                                                     \
  bool RunLinear(const Linear& linear, const TaskPool& pool);          \
  bool RunAttention(const Attention& attention, const TaskPool& pool); \
  }

GRAPHGEN_DECLARE_TILES(amx_emulated)
#if defined(__x86_64__)
GRAPHGEN_DECLARE_TILES(amx)
#endif

namespace {

struct Tiles {
  bool (*linear)(const Linear&, const TaskPool&) = nullptr;
  bool (*attention)(const Attention&, const TaskPool&) = nullptr;
};

struct Kernels {
  const char* name;
  void (*linear)(const Linear&, const TaskPool&);
  void (*attention)(const Attention&, const TaskPool&);
  void (*rotation)(const Rotation&, const TaskPool&);
  void (*norm)(const Norm&, const TaskPool&);
  void (*top_k)(const TopK&, const TaskPool&);
  Tiles tiles = {};

  // The same with a matrix unit.
  Kernels With(const char* unit, Tiles of_unit) const {
    Kernels made = *this;
    made.name = unit, made.tiles = of_unit;
    return made;
  }
};

#define GRAPHGEN_KERNELS(isa) \
  Kernels { \
    #isa, isa::RunLinear, isa::RunAttention, isa::RunRotation, isa::RunNorm, isa::RunTopK \
  }

#if defined(__x86_64__)
// What the CPU has and the kernel keeps across switches of threads. Read from CPUID, since
// __builtin_cpu_supports answers no to everything where zig links its own runtime.
struct Features {
  bool avx2 = false, avx512 = false, avx512_bf16 = false;
};

bool HasBits(unsigned value, unsigned bits) { return (value & bits) == bits; }

Features FeaturesOfCpu() {
  unsigned a, b, c, d;
  constexpr unsigned kFma = 1u << 12, kOsxsave = 1u << 27, kF16c = 1u << 29;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || !HasBits(c, kFma | kOsxsave | kF16c)) return {};
  unsigned kept, unused;
  __asm__ volatile("xgetbv" : "=a"(kept), "=d"(unused) : "c"(0));
  constexpr unsigned kYmm = 0x6, kZmm = 0xe6;
  if (!HasBits(kept, kYmm) || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return {};
  // F, DQ, BW and VL of AVX-512.
  constexpr unsigned kAvx2 = 1u << 5, kWide = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
  constexpr unsigned kVnni = 1u << 11, kBf16 = 1u << 5;
  Features found;
  found.avx2 = HasBits(b, kAvx2);
  found.avx512 = found.avx2 && HasBits(b, kWide) && HasBits(kept, kZmm);
  // Each CPU with bf16 products has those of bytes.
  const bool bytes = HasBits(c, kVnni);
  found.avx512_bf16 = found.avx512 && bytes && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 &&
                      HasBits(a, kBf16);
  return found;
}
#endif

#if defined(__aarch64__)
// What Linux says of the CPU (arm64/elf_hwcaps of its documentation); zeros of another system.
struct Features {
  bool dotprod = false, bf16 = false;
};

Features FeaturesOfCpu() {
  Features found;
#if defined(__linux__)
  constexpr unsigned long kDotProd = 1ul << 20, kBf16 = 1ul << 14;
  found.dotprod = (getauxval(AT_HWCAP) & kDotProd) != 0;
  found.bf16 = found.dotprod && (getauxval(AT_HWCAP2) & kBf16) != 0;
#endif
  return found;
}
#endif

// The variants that this CPU can run, the best first.
std::vector<Kernels> Available() {
  std::vector<Kernels> found;
#if defined(__x86_64__)
  const Features cpu = FeaturesOfCpu();
  if (cpu.avx512_bf16) found.push_back(GRAPHGEN_KERNELS(avx512_bf16));
  if (cpu.avx512) found.push_back(GRAPHGEN_KERNELS(avx512));
  if (cpu.avx2) found.push_back(GRAPHGEN_KERNELS(avx2));
#elif defined(__aarch64__)
  const Features cpu = FeaturesOfCpu();
  if (cpu.bf16) found.push_back(GRAPHGEN_KERNELS(neon_bf16));
  if (cpu.dotprod) found.push_back(GRAPHGEN_KERNELS(neon_dotprod));
#endif
  found.push_back(GRAPHGEN_KERNELS(baseline));
  return found;
}

const std::vector<Kernels>& Variants() {
  static const std::vector<Kernels> variants = Available();
  return variants;
}

// The best variant with an emulation of a matrix unit: slow, to be compared with.
const Kernels& Emulated() {
  static const Kernels emulated = Variants().front().With(
      "amx_emulated", {amx_emulated::RunLinear, amx_emulated::RunAttention});
  return emulated;
}

#if defined(__x86_64__)
// The best variant with AMX. By name alone, not by default: it has not run yet, and a product of 16
// rows has other bits than one of fewer.
const Kernels& WithAmx() {
  static const Kernels made =
      Variants().front().With("amx", {amx::RunLinear, amx::RunAttention});
  return made;
}
#endif

std::atomic<const Kernels*> restricted{nullptr};

const Kernels& Chosen() {
  const Kernels* kernels = restricted.load(std::memory_order_acquire);
  return kernels != nullptr ? *kernels : Variants().front();
}

}  // namespace

void RunLinear(const Linear& linear, const TaskPool& pool) {
  const Kernels& kernels = Chosen();
  if (kernels.tiles.linear && kernels.tiles.linear(linear, pool)) return;
  kernels.linear(linear, pool);
}

void RunAttention(const Attention& attention, const TaskPool& pool) {
  const Kernels& kernels = Chosen();
  if (kernels.tiles.attention && kernels.tiles.attention(attention, pool)) return;
  kernels.attention(attention, pool);
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
  if (std::string(name) == Emulated().name) restricted.store(&Emulated(), std::memory_order_release);
#if defined(__x86_64__)
  const bool beside = std::string(Variants().front().name) == "avx512_bf16";
  if (std::string(name) == "amx" && beside && WhyNoMatrixUnit().empty()) {
    restricted.store(&WithAmx(), std::memory_order_release);
  }
#endif
  for (const Kernels& kernels : Variants()) {
    if (std::string(kernels.name) == name) restricted.store(&kernels, std::memory_order_release);
  }
  return Chosen().name;
}

}  // namespace graphgen
