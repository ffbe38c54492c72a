// The prefetch distance: the time before its use at which a gather must begin.
#pragma once

#include <cstdint>
#include <memory>

#include "consist/begins.h"
#include "consist/cost.h"
#include "consist/program.h"

namespace consist::zero {

/// Estimates the start time of each instruction of a step. A kernel puts arriving data in its place, and NCCL's collectives begin
/// with one: beside a matrix product that fills the device, it runs when the product ends. So a gather advances by one chunk of
/// the tensor at the end of each instruction: a GB may take a layer, whatever the links can carry.
class PrefetchDistance {
 public:
  /// Estimates when instructions of `step` begin, for gathers along `axes`.
  PrefetchDistance(const Program& step, AxisSet axes);

  /// The last instruction beside which the gather of `bytes`, sent by each rank to the others, can begin and still be done when
  /// instruction `needed` begins; 0 if there is none.
  InstructionId latest_begin(std::int64_t bytes, InstructionId needed) const;

 private:
  std::shared_ptr<const CostModel> costs_;
  AxisSet axes_;
  Begins begins_;
};

}  // namespace consist::zero
