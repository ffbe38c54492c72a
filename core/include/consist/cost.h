// Durations of instructions on the machine that a program is planned for. Passes, strategies, estimates and reports ask here; no
// other code holds a rate of a machine.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "consist/dtype.h"
#include "consist/export.h"
#include "consist/mesh.h"
#include "consist/program.h"

namespace consist {

/// The source of a figure of a machine.
enum class FigureSource : std::uint8_t {
  data_sheet,     ///< the vendor's, or derived from it
  measured,       ///< on a machine of the kind
  measured_here,  ///< on this very machine
  given,          ///< by the user, in place of the file's
};
/// "data sheet", "measured on such a machine", "measured here", "given".
CONSIST_API std::string_view name_of(FigureSource source) noexcept;

struct Figure {
  double value = 0;
  FigureSource source = FigureSource::data_sheet;
};

/// Rates of the device of one rank.
struct DeviceRates {
  /// The fraction of the peak that one op reaches under the load of a step (see sustained_clock).
  struct Reached {
    std::string op;     ///< by its name; "*": every op that is not named
    std::string dtype;  ///< of the operands: "fp32", "bf16", "fp8"; "*": all that are not named
    double flops = 0;   ///< of an instruction of this size; shares between two sizes are interpolated. 0: any size
    Figure share;       ///< fraction, 0..1
  };

  /// Seconds of instructions of one op on the compute queue, measured within steps. They take precedence over `reached` and
  /// `memory_rate`.
  struct OpTimes {
    /// An instruction by its cost (Op::cost).
    struct Point {
      double flops = 0, bytes = 0, seconds = 0;
      double load = 0;     ///< at which it was measured (Throttling)
      double scratch = 0;  ///< its kernel's workspace over scratch_base() bytes
    };
    std::string op;
    DType dtype = DType::f32;   ///< of the first operand
    int depth = 0;              ///< Cost::depth; 0: any that has no times of its own
    std::vector<Point> points;  ///< at least one; no two of one cost
    FigureSource source = FigureSource::measured_here;
    double demand = 0;  ///< what the load becomes if nothing else runs (Throttling)
  };

  /// Model of a device at its power limit, which lowers its clock some time after its load rises. At a load x an instruction
  /// takes 1 + x times as long as without load, one without FLOPs 1 + memory_bound * x times. The load is the mean of `demand`
  /// over the time before, weighted by exp(-age / lag).
  struct Throttling {
    Figure lag;           ///< seconds; 0: times do not depend on what runs before
    Figure memory_bound;  ///< fraction, 0..1
  };

  Figure peak_fp32, peak_tf32, peak_bf16, peak_fp8;  ///< FLOP/s of dense matrix products; 0: not known, or it has none
  std::vector<Reached> reached;
  std::vector<OpTimes> times;  ///< no two of one op, dtype and depth
  Throttling throttling;
  Figure sustained_clock{1};   ///< clock under a step's load over that at which `reached` was measured; fraction, 0..1
  Figure memory_bytes;         ///< bytes that a rank's plan may take; 0: not known
  Figure memory_rate;          ///< bytes/s that large kernels read and write
  Figure kernel_seconds;       ///< overhead of every kernel on the device, seconds
  Figure launch_seconds;       ///< time of the host to enqueue a kernel, seconds
  /// Largest chunk of logits, in bytes of the operands' dtype, of kernels that make the logits of the vocabulary for themselves:
  /// they cut the tokens into equal chunks. 0: not known.
  Figure chunk_bytes;

  /// FLOP/s of products of operands of this dtype. The peak of bf16 for 8-bit operands if the device has no 8-bit products.
  CONSIST_API double peak(DType operand) const;
};

/// Rates of a rank over the links within a node, or over those to other nodes.
struct LinkRates {
  /// Each rank sends a message of `bytes` at `rate` bytes/s, latency included.
  struct Point {
    double bytes = 0, rate = 0;
  };
  /// Rates of one collective, or of messages to a neighbour (op "send").
  struct Curve {
    std::string op;            ///< by its name; "*": every collective that is not named
    int members = 2;           ///< of the group that it was measured with; of several curves of an op the nearest counts
    double latency = 0;        ///< seconds of an empty one with so many members; proportional to members - 1
    std::vector<Point> rates;  ///< by size, ascending; at least one
    FigureSource source = FigureSource::data_sheet;
  };

  std::vector<Curve> curves;
  Figure beside_compute{1};  ///< share of the rates that is left beside kernels of the compute queue; fraction, 0..1
  Figure compute_beside{1};  ///< share of the compute queue's speed that is left beside collectives; fraction, 0..1
};

/// Links as one transport uses them.
struct TransportLinks {
  std::string transport;             ///< the plugin's name
  std::optional<LinkRates> node;     ///< between ranks of a node; nothing: not known
  /// To another node, all ranks of the node sending; nothing: not known, or the transport does not leave the node.
  std::optional<LinkRates> network;
};

/// Seconds in which each of `members` ranks sends `bytes`: linear between the points of the curve, at the last one's rate beyond.
CONSIST_API double seconds_of(const LinkRates::Curve& curve, double bytes, int members);

/// A kind of machine. docs/machines.md describes the files that hold them.
struct Machine {
  std::string name;
  std::string device_kind;           ///< DeviceInfo::kind of its devices
  std::vector<std::string> devices;  ///< a device is of this kind if its name contains one of these; empty: every one is
  int ranks_per_node = 1;
  DeviceRates device;
  LinkRates node;                          ///< between ranks of a node, if no transport is named or its links are not known
  LinkRates network;                       ///< the same, to another node, all ranks of the node sending
  std::vector<TransportLinks> transports;  ///< no two of one name
  Figure host_alone;   ///< bytes/s between the memories of host and device in one direction, if no other rank of the node copies
  Figure host_shared;  ///< the same if all ranks do
  /// Number of ranks with which host_shared was measured; fewer ranks share the same total. 0: not known, two ranks count as all.
  int host_shared_ranks = 0;
  Figure host_both{1};  ///< fraction of these rates that is left to each direction while both copy, 0..1
  /// Fraction by which the slowest rank of a node computes longer than the mean of its ranks: the ranks of a job wait for it.
  Figure rank_skew;
  Figure step_error;  ///< relative error of a simulated step, from comparisons with measured ones; 0: not known

  /// The links of that transport; null if they are not known. Owned by the machine.
  CONSIST_API const TransportLinks* find_transport(std::string_view transport) const;
};

/// The machine that ships under this name ("h200"), null if there is none. Lives as long as the process.
CONSIST_API const Machine* find_machine(std::string_view name);
/// The machine that ships for devices of this kind and name (DeviceInfo), null if none does.
CONSIST_API const Machine* find_machine_of_device(std::string_view device_kind, std::string_view device_name);

/// The transports that move the bytes of an axis's groups, by the names of their plugins. Empty: none is named.
struct AxisTransports {
  AxisTransports() = default;
  AxisTransports(std::string within_node, std::string across_nodes)
      : within(std::move(within_node)), across(std::move(across_nodes)) {}
  AxisTransports(const std::string& both) : within(both), across(both) {}
  AxisTransports(const char* both) : within(both), across(both) {}

  std::string within;  ///< of groups whose members are on one node
  std::string across;  ///< of groups on several nodes
  bool operator==(const AxisTransports&) const = default;
};

/// Work that runs at the same time as a collective.
enum class Beside : std::uint8_t { nothing, compute };

/// Durations of a program's instructions on a machine. They are equal for all ranks of a mesh, so that ranks with the same
/// machine compile the same program. THREADS: all members from any thread.
class CONSIST_API CostModel {
 public:
  /// For programs on `mesh`: rank r is on node r / Machine::ranks_per_node. `transports`: by axis; an axis whose entry is
  /// empty or missing has Machine::node and Machine::network.
  CostModel(std::shared_ptr<const Machine> machine, const Mesh& mesh, std::vector<AxisTransports> transports = {});

  const Machine& machine() const noexcept { return *machine_; }

  /// Seconds of the instruction on its queue if nothing runs beside it. On the compute queue: by DeviceRates::times of its op and
  /// dtype, from instructions of about the same cost, if the machine has such; else the longer of its FLOPs over the rate that
  /// its op reaches and its bytes over the memory's rate. Collectives: see transfer_seconds(); a receive takes as long as its
  /// send. 0 if it touches no memory.
  double seconds(const Program& program, const Instruction& instruction) const;

  /// Seconds of each instruction, by its index, in a step that is repeated: seconds() at the clock under the load before it
  /// (DeviceRates::Throttling) and, if there are several ranks, on the slowest of them (Machine::rank_skew).
  std::vector<double> durations(const Program& program) const;

  /// Estimated workspace (Kernel::workspace_bytes) of an instruction of the compute queue, where no device is asked: by
  /// DeviceRates::times of its op and dtype; else the chunk of logits that it makes for itself; else 0. Bytes.
  std::int64_t scratch_bytes(const Program& program, const Instruction& instruction) const;
  /// Bytes to which a workspace is proportional: of the chunk of logits (DeviceRates::chunk_bytes), else what the instruction
  /// reads and writes (Cost::bytes).
  double scratch_base(const Program& program, const Instruction& instruction) const;

  /// The same as seconds() for instructions of the compute queue, 0 for all others.
  double compute_seconds(const Program& program, const Instruction& instruction) const;

  /// Seconds of a kernel that reads and writes so many bytes and computes next to nothing.
  double moving_seconds(double bytes) const;

  // The functions below take a set of mesh axes and use the links of its transport: AxisTransports::within of its axes, or, where
  // its groups lie on several nodes, AxisTransports::across of those of its axes that cross nodes. A run refuses a set whose axes
  // name different transports; here the first axis counts then. ERRORS: std::out_of_range for an axis that the mesh does not
  // have.

  /// Seconds in which `collective` sends `bytes` from each member of a group (Op::bytes_sent). If members are on several
  /// nodes, those of one node send over the links of all of them, and no transfer is faster than within the node.
  double transfer_seconds(const Op& collective, double bytes, AxisSet axes, Beside beside = Beside::nothing) const;

  /// Seconds of a message between neighbours in a group.
  double message_seconds(double bytes, AxisSet axes) const;

  /// The fraction of their speed, 0..1, that collectives keep beside kernels of the compute queue.
  double share_beside_compute(AxisSet axes) const { return rates_over(axes).beside_compute.value; }

  /// The fraction of their speed, 0..1, that kernels of the compute queue keep beside collectives.
  double compute_share_beside(AxisSet axes) const { return rates_over(axes).compute_beside.value; }

  /// The fraction of their speed, 0..1, that copies between host and device keep while others go the other way.
  double copy_share_beside_copies() const { return machine_->host_both.value; }

  /// True if some members of a group lie on different nodes.
  bool crosses_nodes(AxisSet axes) const { return groups_over(axes).crosses; }

  /// The name of the axes' transport; empty: none is named.
  const std::string& transport(AxisSet axes) const { return links_over(axes).transport; }

  /// The same for the one group whose ranks are `group`: it may lie within a node where other groups do not.
  const std::string& transport(AxisSet axes, std::span<const int> group) const;

  /// The names that the axes give for groups within a node or on several nodes, each once. A run refuses more than one.
  std::vector<std::string> transports_over(AxisSet axes, bool several_nodes) const;

  /// True if the machine has rates of the axes' transport (between nodes if they cross nodes, else within one), or if none is
  /// named. If false, Machine::network or Machine::node takes their place.
  bool knows_links(AxisSet axes) const {
    const Links& links = links_over(axes);
    return crosses_nodes(axes) ? links.knows_network : links.knows_node;
  }

 private:
  /// Shares of the peak that one op reaches, by log(FLOPs) of an instruction.
  struct Shares {
    std::vector<std::pair<double, double>> points;
    double at(double flops) const;
  };
  using SharesByType = std::array<Shares, 3>;  // fp32, 16 bits, 8 bits
  struct Groups {
    int members = 1;
    int together = 1;  // fewest members of a group that share a node
    bool crosses = false;
    std::size_t links = 0;  // in links_
  };
  /// Groups of the axis sets that were asked for: a mesh has very many sets.
  struct KnownGroups {
    std::mutex mutex;
    std::map<AxisSet, Groups> of_axes;
  };
  /// Measured instructions of one op and dtype.
  struct Measured {
    const Op* op = nullptr;
    DType dtype = DType::f32;
    int depth = 0;
    double demand = 0;
    struct Point {
      double flops = 0, bytes = 0;  ///< ln
      double ratio = 0;             ///< ln of the seconds over bound_seconds()
      double load = 0, scratch = 0;
    };
    std::vector<Point> points;
    /// For an instruction of this cost: the mean of the nearest points, by the square of their distance.
    Point at(double flops, double bytes) const;
  };
  using Curves = std::vector<std::pair<const Op*, const LinkRates::Curve*>>;  // null: of all others
  /// Rates of one transport's links.
  struct Links {
    std::string transport;
    const LinkRates *node = nullptr, *network = nullptr;
    bool knows_node = true, knows_network = true;
    Curves node_curves, network_curves;
  };

  SharesByType shares_of(std::string_view op) const;
  /// A lower bound of any instruction's time: FLOPs over the peak or bytes over the memory's rate, and a kernel's start.
  double bound_seconds(DType operand, double flops, double bytes) const;
  /// Null if nothing of the kind was measured.
  const Measured* measured(const Op* op, DType operand, int depth) const;
  /// Estimate for an instruction of the compute queue.
  struct Timed {
    double seconds = 0;
    double demand = 0, load = 0, sensitivity = 0;  ///< to the load; 0: it takes as long at any
  };
  Timed timed(const Program& program, const Instruction& instruction) const;
  static Curves curves_of(const LinkRates& links);
  static double over(const Curves& curves, const Op& op, double bytes, int members);
  /// Adds those of a transport to links_, once.
  void add_links(const std::string& transport);
  const Links& links_of(const std::string& transport) const;
  Groups groups_of(AxisSet axes) const;
  Groups groups_over(AxisSet axes) const;
  const Links& links_over(AxisSet axes) const { return links_[groups_over(axes).links]; }
  const LinkRates& rates_over(AxisSet axes) const {
    return *(crosses_nodes(axes) ? links_over(axes).network : links_over(axes).node);
  }
  double flops_rate(const Program& program, const Instruction& instruction, double flops) const;

  std::shared_ptr<const Machine> machine_;
  std::vector<std::pair<const Op*, SharesByType>> shares_;  // the last one is for all others
  std::vector<Measured> measured_;
  std::vector<Links> links_;  // the first are those of no transport
  std::vector<AxisTransports> transports_;  // by axis of the mesh
  Mesh mesh_;
  AxisSet crossing_;  // the axes of which some groups lie on several nodes
  std::shared_ptr<KnownGroups> known_ = std::make_shared<KnownGroups>();
  double host_rate_ = 0;
};

/// The durations that `program` is planned with. Throws ProgramError if it was made without a machine (compile_step() names one).
CONSIST_API const CostModel& costs_of(const Program& program);

}  // namespace consist
