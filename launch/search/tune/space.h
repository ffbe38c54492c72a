// The configurations that `consist tune` looks at: ways to divide the ranks, and options with the values that each may have.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "consist/cost.h"
#include "core/compile/compile.h"
#include "core/config/run_config.h"
#include "core/plugin/host.h"
#include "launch/predict/choices.h"

namespace consist::launch {

/// Options of the run that the user has given, which are not searched; so it is with the plugins' options in the configuration.
struct Settled {
  bool strategy = false, batch = false, recompute = false, offload = false;
};

/// The option for where activations wait for backward: copies cost time, so it is only worth a look where memory is short.
inline constexpr const char* offload_option = "offload-activations";
/// In how many layers something is recomputed: "0-19" in the first twenty.
inline constexpr const char* layers_option = "recompute-layers";

/// An option that is searched.
struct Dimension {
  std::string option;               ///< "batch", "recompute", "zero2.stage"
  std::vector<std::string> values;  ///< the default first; of "batch" the largest first
  /// It has an effect only where that option of the same layout has one of these values; empty: always.
  std::string needs_option = {};
  std::vector<std::string> needs_values = {};
  bool numerics = false;  ///< its values round what is trained in different ways
  bool of_stages = false;  ///< of a strategy that makes stages: estimates of its values share their compilations
  std::size_t coarse = 0;  ///< so many of the values are looked at everywhere, the others around the best alone; 0: all

  std::size_t looked_at() const { return coarse > 0 ? coarse : values.size(); }
};

/// Division of the ranks, and the choices that it leaves.
struct LayoutChoice {
  std::string strategy;  ///< "tp-sp=2+pipeline=2+zero2"
  int stages = 1, data = 1;
  std::vector<Dimension> dimensions = {};
  std::string transport = {};  ///< as train takes it, of several that are searched; empty: the configuration's
  /// Layouts of one number divide the ranks between kinds of strategies in the same way.
  std::size_t division = 0;
  bool cuts_axis = false;  ///< into one within nodes and one between them: zero2=4x8, zero2=8+ddp=4
};

/// A configuration: a layout, and the value of each of its dimensions.
struct Point {
  std::size_t layout = 0;
  std::vector<std::uint8_t> values;
  auto operator<=>(const Point&) const = default;
};

/// Options that a change may touch: those that round in another way, the others, or both.
enum class Numerics : unsigned char {
  kept,     ///< none that rounds in another way
  changed,  ///< those alone
  any,
};

/// Ranks along the axes that hand on activations between layers, 1 without.
int stages_of(const Layout& layout);

/// Micro-batches, largest first, that divide `sequences` (of a step, per data rank); of pipelines only those that give each stage
/// something to do.
std::vector<std::int64_t> micro_batches(std::int64_t sequences, int stages);

class Space {
 public:
  /// `config` has its global batch. Layouts: the user's strategy, or every way to divide the ranks over one strategy within
  /// layers (inside of a node), one of stages and one that splits the batch, of all plugins that there are. Options:
  /// micro-batches, recomputation, and those that the plugins of a layout, the precision and the optimizer call tunable. Each
  /// layout is there with each of `transports` ("nvlink", "nvlink,ddp=efa") whose strategies it has; none: with the
  /// configuration's. Throws as make_parts(), and UsageError for one that no layout can have.
  Space(const RunConfig& config, const Settled& settled, const Machine& machine, PluginHost& host,
        const std::vector<std::string>& transports = {});

  const std::vector<LayoutChoice>& layouts() const noexcept { return layouts_; }

  /// The command line's options that describe the point; defaults are left out.
  Choices choices_of(const Point& point) const;
  /// The values of a dimension of a layout; none if it has no such dimension.
  std::vector<std::string> values_of(std::size_t layout, const std::string& option) const;
  /// The value of an option; empty if the layout has no such dimension.
  std::string value_of(const Point& point, const std::string& option) const;
  /// The defaults of a layout, and the largest micro-batch.
  Point first(std::size_t layout) const;
  /// With this value of an option. False if the layout does not have it.
  bool set(Point& point, const std::string& option, const std::string& value) const;
  /// Those that differ in the value of one option (`options` 1), or of two; an option that only has an effect beside the new value of
  /// another one, such as the chunks of a schedule, is changed with it. What would have no effect is left at its default.
  std::vector<Point> around(const Point& point, int options, Numerics numerics = Numerics::any) const;
  /// All combinations of the options of strategies that make stages, the others as in `point`.
  std::vector<Point> with_stages(const Point& point) const;
  /// True if an option that changes how what is trained is rounded differs from its default.
  bool changes_numerics(const Point& point) const;
  /// Those that recompute the same in fewer layers, the fewest first; none where nothing is recomputed.
  std::vector<Point> recomputing_less(const Point& point) const;
  /// All of a layout; `most` at most.
  std::vector<Point> all(std::size_t layout, std::size_t most) const;

 private:
  void add_layouts(const RunConfig& config, const Settled& settled, const Machine& machine, PluginHost& host);
  void take_transports(const std::vector<std::string>& transports);
  void add_dimensions(LayoutChoice& layout, const RunConfig& config, const Settled& settled, PluginHost& host) const;
  /// Calls `take` with each change of one dimension from `begin` on, and the dimension.
  template <typename Take>
  void each_change(const Point& from, std::size_t begin, Numerics numerics, const Take& take) const;
  bool has_effect(const Point& point, const Dimension& dimension) const;
  Point without_idle_options(Point point) const;

  std::vector<LayoutChoice> layouts_;
  bool strategy_is_settled_;
  bool says_recompute_;  ///< also that there is none: a file of --from has some
  std::int64_t layers_ = 0;
};

}  // namespace consist::launch
