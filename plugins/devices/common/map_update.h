// map_update_N on every device: for each parameter the device's kernel of map, over its elements and then over its scalar states.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "consist/map_update.h"
#include "consist/op.h"
#include "plugins/devices/common/makers.h"

/// Registers a device's kernel for map_update_N of every N, as CONSIST_KERNEL does for one op.
#define CONSIST_MAP_UPDATE_KERNELS(make) \
  CONSIST_KERNEL(map_update_1, make);    \
  CONSIST_KERNEL(map_update_2, make);    \
  CONSIST_KERNEL(map_update_3, make);    \
  CONSIST_KERNEL(map_update_4, make);    \
  CONSIST_KERNEL(map_update_5, make);    \
  CONSIST_KERNEL(map_update_6, make);    \
  CONSIST_KERNEL(map_update_7, make);    \
  CONSIST_KERNEL(map_update_8, make)

namespace consist::kernels {

/// The way in which expressions read each of their inputs. An update has inputs that one of its loops does not read: as elements,
/// which no loop walks through.
inline std::vector<Reads> reads_of_inputs(const Expressions& f) {
  std::vector<Reads> all;
  for (int k = 0; k < f.inputs(); ++k) {
    const std::vector<Reads> reads = f.reads_of(k);
    all.push_back(reads.empty() ? Reads::element : reads[0]);
  }
  return all;
}

class MapUpdate final : public Kernel {
 public:
  /// make(expressions, request) makes the device's kernel of map.
  template <typename Make>
  MapUpdate(const KernelRequest& r, const Make& make) : each_(3 + registry().get(r.op).states_per_update()) {
    for (std::size_t p = 2; p < r.inputs.size(); p += each_) {
      const Operands operands(r.inputs.subspan(p, each_), r.inputs[0], r.inputs[1]);
      One one;
      one.loops = update_loops(r.attributes.string("f"), static_cast<int>(each_) - 3, !operands.master.absent());
      const auto made = [&](const Expressions& f, const List& updated) {
        const List read = operands.read_by(f);
        return make(f, KernelRequest{r.op, read.span(), updated.span(), r.attributes});
      };
      one.elements = made(one.loops.elements, operands.elements(one.loops));
      if (!one.loops.scalars.results().empty()) one.scalars = made(one.loops.scalars, operands.scalars(one.loops));
      parameters_.push_back(std::move(one));
    }
  }

  void launch(std::span<const Buffer> in, std::span<const Buffer>, void* workspace, NativeQueue queue) override {
    for (std::size_t k = 0; k < parameters_.size(); ++k) {
      const One& one = parameters_[k];
      const Operands operands(in.subspan(2 + k * each_, each_), in[0], in[1]);
      one.elements->launch(operands.read_by(one.loops.elements).span(), operands.elements(one.loops).span(), workspace, queue);
      if (one.scalars)
        one.scalars->launch(operands.read_by(one.loops.scalars).span(), operands.scalars(one.loops).span(), workspace, queue);
    }
  }

 private:
  /// A few buffers, not on the heap: a launch must not allocate.
  struct List {
    std::array<Buffer, Expressions::max_inputs + 1> buffers;
    std::size_t count = 0;

    void push_back(const Buffer& buffer) { buffers[count++] = buffer; }
    std::span<const Buffer> span() const { return {buffers.data(), count}; }
  };

  /// One parameter's tensors, all updated in place: outputs are inputs.
  struct Operands {
    Operands(std::span<const Buffer> of, const Buffer& scalars, const Buffer& clip) : value(of[0]), master(of[2]) {
      inputs.push_back(master.absent() ? value : master);
      inputs.push_back(of[1]);
      inputs.push_back(scalars);
      inputs.push_back(clip);
      for (const Buffer& state : of.subspan(3)) inputs.push_back(state);
    }
    List read_by(const Expressions& f) const {
      List read = inputs;
      read.count = static_cast<std::size_t>(f.inputs());
      return read;
    }
    List elements(const UpdateLoops& loops) const {
      List made;
      made.push_back(value);
      if (!master.absent()) made.push_back(master);
      add_states(made, loops, false);
      return made;
    }
    List scalars(const UpdateLoops& loops) const {
      List made;
      add_states(made, loops, true);
      return made;
    }
    void add_states(List& made, const UpdateLoops& loops, bool are_scalars) const {
      for (std::size_t s = 0; s < loops.is_scalar.size(); ++s) {
        if (loops.is_scalar[s] == are_scalars) made.push_back(inputs.buffers[update_state_input + s]);
      }
    }

    Buffer value, master;
    List inputs;  ///< as the expressions count them
  };

  struct One {
    UpdateLoops loops;
    Made elements, scalars;
  };

  std::size_t each_;  ///< inputs of one parameter
  std::vector<One> parameters_;
};

}  // namespace consist::kernels
