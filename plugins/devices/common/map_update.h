// map_update_N on every device: for each parameter the device's kernels of reduce and map, over its elements, its blocks and its
// scalars (consist/map_update.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
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
  /// make(expressions, request) makes the device's kernel of map, make_reduce(request) that of reduce.
  template <typename Make, typename MakeReduce>
  MapUpdate(const KernelRequest& r, const Make& make, const MakeReduce& make_reduce)
      : each_(3 + registry().get(r.op).states_per_update()), block_(r.attributes.integer_or("block", 0)) {
    for (std::size_t p = 2; p < r.inputs.size(); p += each_) {
      One one;
      one.loops = update_loops(r.attributes, static_cast<int>(each_) - 3, !r.inputs[p + 2].absent());
      const Operands operands(*this, one.loops, r.inputs, p, nullptr);
      for (std::size_t k = 0; k < one.loops.largest.size(); ++k) {
        const Attributes attributes{{"f", one.loops.largest[k].text()}, {"by", std::string("max")}};
        const List read = operands.read_by(one.loops.largest[k]);
        one.largest.push_back(make_reduce(KernelRequest{"reduce", read.span(), operands.largest(k), attributes}));
      }
      const auto made = [&](const Expressions& f, const List& updated) {
        const List read = operands.read_by(f);
        return f.results().empty() ? Made() : Made(make(f, KernelRequest{r.op, read.span(), updated.span(), r.attributes}));
      };
      one.elements = made(one.loops.elements, operands.updated(Reads::same));
      one.blocks = made(one.loops.blocks, operands.updated(Reads::block));
      one.scalars = made(one.loops.scalars, operands.updated(Reads::element));
      workspace_ = std::max(workspace_, operands.largest_bytes() * static_cast<std::int64_t>(one.largest.size()));
      parameters_.push_back(std::move(one));
    }
  }
  std::int64_t workspace_bytes() const override { return workspace_; }

  void launch(std::span<const Buffer> in, std::span<const Buffer>, void* workspace, NativeQueue queue) override {
    for (std::size_t n = 0; n < parameters_.size(); ++n) {
      const One& one = parameters_[n];
      const Operands operands(*this, one.loops, in, 2 + n * each_, workspace);
      for (std::size_t k = 0; k < one.largest.size(); ++k)
        one.largest[k]->launch(operands.read_by(one.loops.largest[k]).span(), operands.largest(k), nullptr, queue);
      const auto run = [&](const Made& kernel, const Expressions& f, Reads how) {
        if (kernel) kernel->launch(operands.read_by(f).span(), operands.updated(how).span(), nullptr, queue);
      };
      run(one.elements, one.loops.elements, Reads::same);
      run(one.blocks, one.loops.blocks, Reads::block);
      run(one.scalars, one.loops.scalars, Reads::element);
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
    /// The parameter whose tensors begin at input `first`.
    Operands(const MapUpdate& update, const UpdateLoops& rule, std::span<const Buffer> in, std::size_t first, void* workspace)
        : loops(rule), value(update.in_blocks(in[first])), master(update.in_blocks(in[first + 2])) {
      inputs.push_back(master.absent() ? value : master);
      inputs.push_back(update.in_blocks(in[first + 1]));
      inputs.push_back(in[0]);
      inputs.push_back(in[1]);
      for (std::size_t s = 0; s < loops.states.size(); ++s) {
        const Buffer& state = in[first + 3 + s];
        inputs.push_back(loops.states[s] == Reads::same ? update.in_blocks(state) : state);
      }
      first_largest = inputs.count;
      for (std::size_t k = 0; k < loops.largest.size(); ++k) {
        void* const data = workspace == nullptr ? nullptr : static_cast<char*>(workspace) + k * largest_bytes();
        inputs.push_back({data, DType::f32, {value.shape[0]}, 0, value.space});
      }
    }
    /// One number for each block, in a piece of memory that ends at 256 bytes.
    std::int64_t largest_bytes() const { return loops.largest.empty() ? 0 : (value.shape[0] * 4 + 255) / 256 * 256; }
    std::span<const Buffer> largest(std::size_t k) const { return inputs.span().subspan(first_largest + k, 1); }
    List read_by(const Expressions& f) const {
      List read = inputs;
      read.count = static_cast<std::size_t>(f.inputs());
      return read;
    }
    /// The outputs of the loop over elements (Reads::same), blocks or scalars (Reads::element).
    List updated(Reads how) const {
      List made;
      if (how == Reads::same) made.push_back(value);
      if (how == Reads::same && !master.absent()) made.push_back(master);
      for (std::size_t s = 0; s < loops.states.size(); ++s) {
        if (loops.states[s] == how) made.push_back(inputs.buffers[update_state_input + s]);
      }
      return made;
    }

    const UpdateLoops& loops;
    Buffer value, master;
    List inputs;  ///< as the expressions count them
    std::size_t first_largest = 0;
  };

  /// A tensor of elements, in a rule of blocks with a block in each row.
  Buffer in_blocks(Buffer buffer) const {
    if (block_ > 0 && !buffer.absent()) buffer.shape = {buffer.shape.elements() / block_, block_};
    return buffer;
  }

  struct One {
    UpdateLoops loops;
    std::vector<Made> largest;
    Made elements, blocks, scalars;
  };

  std::size_t each_;  ///< inputs of one parameter
  std::int64_t block_, workspace_ = 0;
  std::vector<One> parameters_;
};

}  // namespace consist::kernels
