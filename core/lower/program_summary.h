// Costs of a planned program: FLOPs, bytes of every collective, memory. Printed by explain, stored in the archive.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "consist/export.h"
#include "core/lower/memory_plan.h"
#include "core/lower/prepared_program.h"

namespace consist {

/// Collectives of one op over the same axes, per rank and step.
struct CollectiveSummary {
  std::string axes;  ///< "data", "data+context"
  std::string op;
  bool gathers = false;  ///< an all_gather
  std::int64_t count = 0;
  std::int64_t bytes = 0;       ///< of the tensors that enter them, as one rank holds them
  std::int64_t bytes_sent = 0;  ///< by one rank, if a ring carries it: all_reduce 2(n-1)/n, reduce_scatter (n-1)/n of the input,
                                ///< all_gather n-1 times it
};

struct OpSummary {
  std::string op;
  std::int64_t count = 0;
  double flops = 0;
  double bytes = 0;
};

struct ProgramSummary {
  std::int64_t instructions = 0;
  std::int64_t tensors = 0;
  std::int64_t parameters = 0;       ///< elements of the trained model, of all ranks that share the program's tensors
  std::int64_t rank_parameters = 0;  ///< of those, the elements that this rank holds
  std::int64_t frozen_model_parameters = 0;  ///< elements of the loss's frozen models beside it, counted as `parameters` are
  double flops = 0;                  ///< of matrix products, per rank and step
  double fp8_flops = 0;              ///< of these, by products of 8-bit floats
  double repeated_flops = 0;         ///< of these, by --recompute
  std::string parts;                 ///< the strategy that cut forward along its tokens, and the number of slices; empty: none
  bool gathers_nothing_quantized = false;  ///< although an option asks for it (see gather_quantized.h)
  std::vector<OpSummary> ops;        ///< by flops, then bytes
  std::vector<CollectiveSummary> collectives;
  std::int64_t planned_bytes = 0;  ///< device memory per rank
  std::int64_t planned_host_bytes = 0;
  std::vector<MemoryShare> memory;   ///< at the peak, by role
  std::vector<MemoryShare> largest;  ///< tensors
  std::string peak_at;               ///< the instruction where memory is fullest
};

CONSIST_API ProgramSummary summarize(const PreparedProgram& program);
/// "566 MFLOP (61.0%) of them in fp8", of matrix products.
CONSIST_API std::string fp8_text(const ProgramSummary& summary);
CONSIST_API std::string summary_text(const ProgramSummary& summary);
CONSIST_API std::string summary_json(const ProgramSummary& summary);

}  // namespace consist
