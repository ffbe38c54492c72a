// Parallel strategies: the placements of tensors on the mesh, and the order of communication and compute. A strategy sets
// placements, and inserts and moves instructions; it knows neither the model nor the transport.
#pragma once

#include <cstdint>
#include <string>

#include "consist/export.h"
#include "consist/program.h"

namespace consist {

class PassList;

/// Treatment of a strategy that spans one rank (`--strategy NAME=1`) and so has no axis.
enum class OnOneRank : std::uint8_t {
  not_called,       ///< it is left out, and the run says so by name
  changes_nothing,  ///< it is left out: it only says how several ranks share the work
  is_called,        ///< its functions are called, with no axes: it also changes what one rank trains
};

/// The mesh axes that a strategy works on.
struct AxisRequest {
  std::string name;         ///< "data", "tensor", ...
  bool takes_rest = false;  ///< the size may be left out: it is then that of all ranks that other strategies do not take
  bool splits_batch =
      false;  ///< each rank of the axis has sequences of its own: the logical batch is the local one times the size
  /// Where the axis lies: members of the smallest distance are neighbours. 0: activations are sent within layers; 1: gradients
  /// are sharded, parameters gathered; 2: gradients are only summed; 3: activations are sent between layers. Strategies of one
  /// name and different distances share the axis: "name.0" is the outermost one's, whose schedule() runs last of theirs.
  int distance = 1;
  /// Number of axes that the strategy works on: `--strategy NAME=2x4` gives it two, of which the members of the second one are
  /// neighbours. One axis is called `name`; of several, axis k is called "name.k", and one of size 1 does not exist.
  int least_axes = 1, most_axes = 1;
  /// Order in which schedule() runs, whatever `distance` is: strategies of a smaller turn first, those of one turn in the order
  /// of the mesh's axes.
  int turn = 0;
  /// Each rank of the axis has tokens of its own and the parameters that all others have, but for those that partition() sharded
  /// along it: gradients of the others are partial along the axis, and a strategy that `takes_shared` reduces them.
  bool shares_parameters = false;
  /// Works on the parameters of its own axes and of all axes of strategies that share theirs: its functions get the set of all.
  /// Inputs, and parameters that are not replicated along an axis of others, are placed there already; they stay as they are.
  bool takes_shared = false;
  /// Treatment on one rank, where the strategy has no axis.
  OnOneRank on_one_rank = OnOneRank::not_called;
};

/// The plugin kind "strategy". One object per use on the command line. THREADS: several at a time, each with a program of its
/// own: predictions compile the ranks of a pipeline in parallel.
class CONSIST_API ParallelStrategy {
 public:
  virtual ~ParallelStrategy();
  virtual AxisRequest axis() const = 0;

  // `axes` are the mesh axes that the strategy was given: one, unless its request allows several; none with OnOneRank::is_called
  // on one rank.

  /// Sets placements on inputs and parameters of the forward program of one micro-batch, along `axes`; everything else
  /// follows by the ops' placement rules. An activation with a placement set here is resharded to it as soon as it is
  /// made. Logical batch sizes cover all ranks of the mesh. ERRORS: UsageError for a tensor that cannot be split.
  virtual void partition(Program& forward, AxisSet axes) const = 0;

  /// Keeps only the instructions that the program's rank (Program::rank) executes, if ranks execute different ones. `segment` is
  /// one micro-batch: forward (evaluation) or forward and backward. Called in the order of the mesh's axes, before any
  /// schedule(). The default removes nothing.
  virtual void divide(Program& segment, AxisSet axes) const;

  /// Works on the whole step but the optimizer: forward and backward of every micro-batch, gradients accumulated in
  /// Parameter::gradient. Called in the order of AxisRequest::turn. A gradient that is still partial along the axes afterwards
  /// is reduced by the optimizer pass, one by one and without overlap. The default does nothing.
  virtual void schedule(Program& step, AxisSet axes) const;

  /// Works on a complete step, its optimizer included, or on an evaluation: for states in the host's memory that must be copied
  /// to the device in time. Called last, in the order of the mesh's axes. The default does nothing.
  virtual void finish(Program& program, AxisSet axes) const;

  /// Adds passes of its own (consist/pass.h), beside the functions above; `axes` are its mesh axes. The default adds none.
  virtual void add_passes(PassList& passes, AxisSet axes) const;
};

}  // namespace consist
