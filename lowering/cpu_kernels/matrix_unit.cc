#include "matrix_unit.h"

#include <cerrno>
#include <cstring>

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

}  // namespace

const std::string& WhyNoMatrixUnit() {
  static const std::string why = WhyNoMatrixUnit(HasUnit(), KeepsTiles(), Request);
  return why;
}

}  // namespace graphgen
