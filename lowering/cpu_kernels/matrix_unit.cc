#include "matrix_unit.h"

#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <memory>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace graphgen {

std::string WhyNoMatrixUnit(bool has, bool kept, RequestUnit request) {
  if (!has) return "this CPU has none";
  if (!kept) return "the system does not keep its tiles";
  const int error = request();
  if (!error) return "";
  return std::string("the system refuses it to this process: ") + std::strerror(error);
}

namespace {

#if defined(__x86_64__)
// Bits of leaf 7 of CPUID: AMX-BF16, AMX-TILE and AMX-INT8.
bool HasUnit() {
  unsigned a, b, c, d;
  constexpr unsigned kAmx = 1u << 22 | 1u << 24 | 1u << 25;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kAmx) == kAmx;
}

// Whether XCR0 has the form of tiles and their data.
bool KeepsTiles() {
  unsigned a, b, c, d;
  constexpr unsigned kOsxsave = 1u << 27, kTiles = 1u << 17 | 1u << 18;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || !(c & kOsxsave)) return false;
  unsigned kept, unused;
  __asm__ volatile("xgetbv" : "=a"(kept), "=d"(unused) : "c"(0));
  return (kept & kTiles) == kTiles;
}
#else
bool HasUnit() { return false; }
bool KeepsTiles() { return false; }
#endif

int Request() {
#if defined(__x86_64__) && defined(__linux__)
  // ARCH_REQ_XCOMP_PERM of arch_prctl(2), and the number of the data of tiles.
  constexpr long kRequest = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0 ? 0 : errno;
#else
  return ENOSYS;
#endif
}

// bf16 of either sign from 2^-30 to 2^30, zeros and denormals, which are any bytes as well.
void FillOperands(TileTrial* trial) {
  uint32_t state = 1;
  const auto fill = [&state](char* to, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 2) {
      state = state * 1664525u + 1013904223u;
      const uint32_t exponent = state >> 29 == 0 ? 0 : 97 + (state >> 8) % 61;
      const uint16_t number = (state >> 16 & 0x8000) | exponent << 7 | (state >> 20 & 0x7f);
      std::memcpy(to + at, &number, sizeof number);
    }
  };
  fill(trial->x, sizeof trial->x);
  fill(trial->columns[0], sizeof trial->columns);
}

thread_local sigjmp_buf* after_signal = nullptr;

void OnSignal(int number) {
  if (after_signal != nullptr) siglongjmp(*after_signal, number);
  // Of another thread: the instruction runs again, and ends the process.
  std::signal(number, SIG_DFL);
}

// Runs a trial; the number of a signal that it raises, or 0.
int SignalOf(RunTrial run, TileTrial* trial) {
  constexpr int kSignals[] = {SIGILL, SIGSEGV, SIGBUS};
  struct sigaction ours = {}, before[3];
  ours.sa_handler = OnSignal;
  sigemptyset(&ours.sa_mask);
  for (int n = 0; n < 3; ++n) sigaction(kSignals[n], &ours, &before[n]);
  sigjmp_buf back;
  const int raised = sigsetjmp(back, 1);
  if (raised == 0) {
    after_signal = &back;
    run(trial);
  }
  after_signal = nullptr;
  for (int n = 0; n < 3; ++n) sigaction(kSignals[n], &before[n], nullptr);
  return raised;
}

}  // namespace

std::string WhyTrialFails(RunTrial run) {
  const auto made = std::make_unique<TileTrial>(), expected = std::make_unique<TileTrial>();
  FillOperands(made.get());
  FillOperands(expected.get());
  amx_emulated::RunTileTrial(expected.get());
  const int raised = SignalOf(run, made.get());
  if (raised != 0) return std::string("its instructions end in a signal: ") + strsignal(raised);
  const bool same = std::memcmp(made->sums, expected->sums, sizeof made->sums) == 0;
  return same ? "" : "its products are not those that Intel's manual defines";
}

const std::string& WhyMachineHasNoMatrixUnit() {
  static const std::string why = WhyNoMatrixUnit(HasUnit(), KeepsTiles(), [] { return 0; });
  return why;
}

const std::string& WhyNoMatrixUnit() {
  static const std::string why = [] {
    std::string found = WhyNoMatrixUnit(HasUnit(), KeepsTiles(), Request);
#if defined(__x86_64__)
    if (found.empty()) found = WhyTrialFails(amx::RunTileTrial);
#endif
    return found;
  }();
  return why;
}

}  // namespace graphgen
