// Whether this process may use AMX, the matrix unit of x86-64.

#ifndef GRAPHGEN_MATRIX_UNIT_H_
#define GRAPHGEN_MATRIX_UNIT_H_

#include <string>

namespace graphgen {

// Asks the system for the unit, for all threads of the process; returns 0 or an error of errno.h.
using RequestUnit = int (*)();

// Why the unit is not used; empty if it is.
//
// Args: whether the CPU has tiles with products of bf16 and of bytes, and whether the system keeps
// tiles for each thread. Only where both hold is the system asked.
std::string WhyNoMatrixUnit(bool has, bool kept, RequestUnit request);

// The same of this process, which asks once.
const std::string& WhyNoMatrixUnit();

}  // namespace graphgen

#endif  // GRAPHGEN_MATRIX_UNIT_H_
