// The parameters that a run trains (--freeze, --train-only).
#pragma once

#include <string>
#include <vector>

#include "consist/export.h"
#include "consist/model.h"
#include "consist/program.h"
#include "core/program/name_patterns.h"

namespace consist {

/// Patterns of Hugging Face names (core/program/name_patterns.h). At most one list is given.
struct FreezeRequest {
  std::vector<std::string> frozen;   ///< --freeze: these are not trained
  std::vector<std::string> trained;  ///< --train-only: these alone are
  bool any() const noexcept { return !frozen.empty() || !trained.empty(); }
};

/// Parses the values of the two options, patterns separated by commas; "" is none. Throws UsageError for an empty pattern and
/// where both are given.
CONSIST_API FreezeRequest parse_freeze(const std::string& frozen, const std::string& trained);

/// Sets Parameter::trainable; what is frozen already, as by an adapter, stays so under --freeze. Throws UsageError for a pattern
/// that matches no parameter, and where none is left to train.
CONSIST_API void freeze(Program& program, const FreezeRequest& request);

/// A program with the model's parameters, whatever the layout: all that a program of one rank has.
CONSIST_API Program whole_model(const Architecture& architecture, const FreezeRequest& request);

/// Matrix work of forward and backward beside that of a run that trains all parameters, 0..1.
CONSIST_API double trained_share_of_flops(const Architecture& architecture, std::int64_t sequence, const FreezeRequest& request);

}  // namespace consist
