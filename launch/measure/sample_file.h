// The samples of calibrate as a file, for looking into what a machine file was made from.
#pragma once

#include <string>
#include <vector>

#include "consist/files.h"
#include "launch/measure/step_samples.h"

namespace consist::launch {

/// A list of steps: "step", its text_of(), and "instructions" in order, each a list of op, dtype, kind, FLOPs, bytes, seconds and
/// scratch (OpSample). `samples` are those of `steps`, in their order. Throws as write_output().
void write_samples(const Output& output, const std::vector<CalibrationStep>& steps,
                   const std::vector<std::vector<OpSample>>& samples);

}  // namespace consist::launch
