#include "linear.h"

namespace graphgen {

#define GRAPHGEN_DECLARE(isa) \
  namespace isa {             \
  void RunLinear(const Linear& linear, const TaskPool& pool); \
  }

GRAPHGEN_DECLARE(baseline)
#if defined(__x86_64__)
GRAPHGEN_DECLARE(avx2)
GRAPHGEN_DECLARE(avx512)
GRAPHGEN_DECLARE(avx512_bf16)
#endif

namespace {

using Run = void (*)(const Linear&, const TaskPool&);

struct Choice {
  const char* name;
  Run run;
};

Choice Choose() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (wide && __builtin_cpu_supports("avx512bf16")) return {"avx512_bf16", avx512_bf16::RunLinear};
  if (wide) return {"avx512", avx512::RunLinear};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {"avx2", avx2::RunLinear};
  }
#endif
  return {"baseline", baseline::RunLinear};
}

const Choice& Chosen() {
  static const Choice choice = Choose();
  return choice;
}

}  // namespace

void RunLinear(const Linear& linear, const TaskPool& pool) { Chosen().run(linear, pool); }

const char* InstructionSet() { return Chosen().name; }

}  // namespace graphgen
