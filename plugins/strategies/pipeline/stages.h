// Assigns the layers of a model to stages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "consist/program.h"

namespace consist::pipeline {

/// Places where a model may be cut.
enum class Cut : std::uint8_t {
  layers,     ///< between layers
  blocks,     ///< where one tensor crosses, the residual stream: between layers, and between attention and the MLP
  operators,  ///< in front of any op with parameters, where messages are several times the stream
  automatic,  ///< blocks, unless operators shorten the longest stage by 1% or more
};

/// Share of a message's time that counts for the stages at its two ends: it is sent beside compute, and only the
/// first and the last ones of a step are waited for. The share is small, so that messages grow only for more even
/// stages.
inline constexpr double crossing_share = 1.0 / 8;

/// The smallest stage: the work between two places where the model may be cut, and the cost of a cut behind it for both sides.
struct Piece {
  double cost = 0;
  double cut = 0;
  double lead = 0;  ///< seconds that it adds to the stages behind its own
};

/// Numbers the pieces of a forward program in Tag::stage of its instructions and returns their costs: seconds of forward and
/// backward by costs_of(), in the dtypes that follow from those of parameters.
/// Messages go along `axis` of the mesh. A lead is the forward part over Program::micro_batches, if leads count.
std::vector<Piece> pieces_of(Program& forward, int axis, Cut cut, bool leads);

/// Cuts `pieces` (at least `parts` of them) into `parts` contiguous, non-empty groups whose largest cost, with the cuts at both
/// ends and the leads of all pieces before, is as small as can be; of several such cuts one whose costs are the most even. Costs
/// of group i count 1 / speeds[i % speeds.size()] times; all > 0, none: all are equally fast. Returns the group of each.
std::vector<int> balanced(const std::vector<Piece>& pieces, int parts, const std::vector<double>& speeds = {});

/// Sets Tag::stage of every instruction of a forward program by balanced cost. Whatever the cut, as many stages as layers can be
/// made. Instructions before the first layer lie in the
/// first stage, those after the last one in the last stage. With `leads` the time by which a stage begins later than the first
/// one counts as its own: for schedules in which stages wait for nothing else. Neither the precision's quantized products nor
/// recomputation are counted: they come later. `speeds` are those of the ranks, between which stages go round. Throws UsageError
/// if there are fewer layers than stages.
void assign_stages(Program& forward, int axis, int stages, Cut cut, bool leads, const std::vector<double>& speeds = {});

/// Numbers above 0 with colons between them, or none. Throws UsageError if the text is something else.
std::vector<double> speeds_of(const std::string& text);

/// Throw UsageError for more stages than layers, and for another number of speeds than ranks, unless there are none.
void check_stages(int layers, int stages);
void check_speeds(const std::vector<double>& speeds, int ranks);

}  // namespace consist::pipeline
