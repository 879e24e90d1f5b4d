// Whether this process may use AMX, the matrix unit of x86-64.

#ifndef GRAPHGEN_MATRIX_UNIT_H_
#define GRAPHGEN_MATRIX_UNIT_H_

#include <string>

#include "tile_trial.h"

namespace graphgen {

// Asks the system for the unit, for all threads of the process; returns 0 or an error of errno.h.
using RequestUnit = int (*)();

// Why the unit is not used; empty if it is.
//
// Args: whether the CPU has tiles with products of bf16 and of bytes, and whether the system keeps
// tiles for each thread. Only where both hold is the system asked.
std::string WhyNoMatrixUnit(bool has, bool kept, RequestUnit request);

// Why the sums of a trial are not those of the emulation; empty if they are. A signal that the trial
// raises in this thread (SIGILL, SIGSEGV, SIGBUS) is a reason.
std::string WhyTrialFails(RunTrial run);

// Why this machine has no such unit, without asking the system for it; empty if it has one.
const std::string& WhyMachineHasNoMatrixUnit();

// The same of this process, which asks once, and then compares products with those of the emulation.
const std::string& WhyNoMatrixUnit();

}  // namespace graphgen

#endif  // GRAPHGEN_MATRIX_UNIT_H_
