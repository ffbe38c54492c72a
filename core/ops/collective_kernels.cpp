#include "core/ops/collective_kernels.h"

#include <algorithm>
#include <vector>

#include "consist/edit.h"
#include "consist/error.h"

namespace consist::ops {
namespace {

std::int64_t bytes_of(const Buffer& buffer) {
  return buffer.shape.elements() * static_cast<std::int64_t>(size_of(buffer.dtype));
}

/// Sums buffers in place. Buffers that lie one behind the other (but for alignment) go as one message, whose gaps are summed
/// along: they belong to the pack and no instruction reads them.
class AllReduceKernel final : public Kernel {
 public:
  explicit AllReduceKernel(Communicator* communicator) : communicator_(communicator) {}

  void launch(std::span<const Buffer> inputs, std::span<const Buffer> /*outputs*/, void* /*workspace*/,
              NativeQueue queue) override {
    for (std::size_t i = 0; i < inputs.size();) {
      char* const begin = inputs[i].as<char>();
      char* end = begin + bytes_of(inputs[i]);
      std::size_t next = i + 1;
      for (; next < inputs.size() && inputs[next].dtype == inputs[i].dtype; ++next) {
        const std::ptrdiff_t gap = inputs[next].as<char>() - end;
        if (gap < 0 || gap >= tensor_alignment) break;
        end = inputs[next].as<char>() + bytes_of(inputs[next]);
      }
      communicator_->all_reduce(begin, (end - begin) / static_cast<std::ptrdiff_t>(size_of(inputs[i].dtype)), inputs[i].dtype,
                                queue);
      i = next;
    }
  }

  void check() override { communicator_->check(); }

 private:
  Communicator* communicator_;
};

/// A group of calls sent as one message; ended also by an exception in between.
class Group {
 public:
  Group(Communicator& communicator, NativeQueue queue) : communicator_(communicator), queue_(queue) {
    communicator_.group_begin(queue_);
  }
  ~Group() {
    if (!ended_) {
      try {
        communicator_.group_end(queue_);
      } catch (const std::exception&) {  // the exception that broke the group is being thrown already
      }
    }
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  void end() {
    ended_ = true;
    communicator_.group_end(queue_);
  }

 private:
  Communicator& communicator_;
  NativeQueue queue_;
  bool ended_ = false;
};

constexpr std::size_t most_messages = 256;  // per tensor

/// Calls `send` for each message; several are one group.
template <typename Message, typename Send>
void each_as_one(Communicator& communicator, const std::vector<Message>& messages, NativeQueue queue, Send send) {
  if (messages.size() == 1) return send(messages[0]);
  Group group(communicator, queue);
  for (const Message& message : messages) send(message);
  group.end();
}

/// One message: a run of equal slices, one per rank, of which this rank has or gets one.
struct Message {
  std::size_t tensor;
  std::int64_t whole_offset;  ///< bytes into the unsharded tensor, where the slices begin
  std::int64_t part_offset;   ///< bytes into the rank's slice
  std::int64_t count;         ///< elements of each slice
};

/// Slices along dimension `dim` are contiguous for each index of the dimensions before it.
void add_messages(std::vector<Message>& messages, std::size_t tensor, const Buffer& whole, std::int64_t dim, int ranks) {
  const auto size = static_cast<std::int64_t>(size_of(whole.dtype));
  if (dim < 0) {  // flat; the last slice's padding is moved along
    messages.push_back({tensor, 0, 0, (whole.shape.elements() + ranks - 1) / ranks});
    return;
  }
  std::int64_t outer = 1, inner = 1;
  for (int i = 0; i < dim; ++i) outer *= whole.shape[i];
  for (int i = static_cast<int>(dim); i < whole.shape.rank(); ++i) inner *= whole.shape[i];
  for (std::int64_t o = 0; o < outer; ++o)
    messages.push_back({tensor, o * inner * size, o * inner / ranks * size, inner / ranks});
}

/// all_gather or reduce_scatter of one or several tensors along one dimension.
class PartsKernel final : public Kernel {
 public:
  PartsKernel(const KernelRequest& request, bool gathers, Communicator* communicator, int ranks)
      : communicator_(communicator), gathers_(gathers) {
    const std::int64_t dim = request.attributes.integer("dim");
    const std::span<const Buffer> wholes = gathers_ ? request.outputs : request.inputs;
    for (std::size_t t = 0; t < wholes.size(); ++t) add_messages(messages_, t, wholes[t], dim, ranks);
    if (messages_.size() > most_messages * wholes.size()) {
      throw ProgramError("op '" + std::string(request.op) + "' along dimension " + std::to_string(dim) + " of " +
                         wholes[0].shape.text() + " would take " + std::to_string(messages_.size()) +
                         " messages; copy to a layout with larger parts first");
    }
  }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* /*workspace*/, NativeQueue queue) override {
    each_as_one(*communicator_, messages_, queue, [&](const Message& message) { send(message, in, out, queue); });
  }

  void check() override { communicator_->check(); }

 private:
  void send(const Message& m, std::span<const Buffer> in, std::span<const Buffer> out, NativeQueue queue) {
    const char* from = in[m.tensor].as<char>() + (gathers_ ? m.part_offset : m.whole_offset);
    char* to = out[m.tensor].as<char>() + (gathers_ ? m.whole_offset : m.part_offset);
    if (gathers_) {
      communicator_->all_gather(from, to, m.count, in[m.tensor].dtype, queue);
    } else {
      communicator_->reduce_scatter(from, to, m.count, in[m.tensor].dtype, queue);
    }
  }

  Communicator* communicator_;
  bool gathers_;
  std::vector<Message> messages_;
};

/// all_to_all of one or several tensors: slices along attribute "to" of the input become slices along "dim" of the output.
class ExchangeKernel final : public Kernel {
 public:
  ExchangeKernel(const KernelRequest& request, Communicator* communicator, int ranks) : communicator_(communicator) {
    const auto dim = static_cast<int>(request.attributes.integer("dim")), to = static_cast<int>(request.attributes.integer("to"));
    for (std::size_t t = 0; t < request.inputs.size(); ++t) add_runs(t, request.inputs[t], request.outputs[t], dim, to, ranks);
    if (runs_.size() > most_messages * request.inputs.size()) {
      throw ProgramError("op '" + std::string(request.op) + "' from dimension " + std::to_string(dim) + " to " +
                         std::to_string(to) + " of " + request.inputs[0].shape.text() + " on each rank would take " +
                         std::to_string(runs_.size()) + " messages; copy to a layout with larger parts first");
    }
  }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* /*workspace*/, NativeQueue queue) override {
    each_as_one(*communicator_, runs_, queue, [&](const Run& run) { exchange(run, in, out, queue); });
  }

  void check() override { communicator_->check(); }

 private:
  /// The longest contiguous range of each slice on both sides. In bytes, but for strides and count.
  struct Run {
    std::size_t tensor;
    std::int64_t input_offset, input_stride, output_offset, output_stride, count;
  };

  void add_runs(std::size_t tensor, const Buffer& in, const Buffer& out, int dim, int to, int ranks) {
    Shape part = in.shape;
    part[to] /= ranks;
    const auto elements_behind = [](const Shape& shape, int d) {
      std::int64_t elements = 1;
      for (int i = d + 1; i < shape.rank(); ++i) elements *= shape[i];
      return elements;
    };
    const int inner = std::max(dim, to);
    Run run{tensor,
            0,
            part[to] * elements_behind(in.shape, to),
            0,
            part[dim] * elements_behind(out.shape, dim),
            part[inner] * elements_behind(part, inner)};
    std::int64_t runs = 1;
    for (int d = 0; d < inner; ++d) runs *= part[d];
    const auto size = static_cast<std::int64_t>(size_of(in.dtype));
    for (std::int64_t r = 0; r < runs; ++r) {
      run.input_offset = run.output_offset = 0;
      std::int64_t rest = r;
      for (int d = inner - 1; d >= 0; --d) {
        run.input_offset += rest % part[d] * elements_behind(in.shape, d) * size;
        run.output_offset += rest % part[d] * elements_behind(out.shape, d) * size;
        rest /= part[d];
      }
      runs_.push_back(run);
      if (runs_.size() > most_messages * (tensor + 1)) return;  // it is refused
    }
  }

  void exchange(const Run& run, std::span<const Buffer> in, std::span<const Buffer> out, NativeQueue queue) {
    communicator_->all_to_all(in[run.tensor].as<char>() + run.input_offset, run.input_stride,
                              out[run.tensor].as<char>() + run.output_offset, run.output_stride, run.count, in[run.tensor].dtype,
                              queue);
  }

  Communicator* communicator_;
  std::vector<Run> runs_;
};

/// Each tensor to the next member of the ring, and the one of the member before.
class ShiftKernel final : public Kernel {
 public:
  ShiftKernel(Communicator* communicator, int ranks) : communicator_(communicator), ranks_(ranks) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* /*workspace*/, NativeQueue queue) override {
    const int rank = communicator_->rank(), next = (rank + 1) % ranks_, previous = (rank + ranks_ - 1) % ranks_;
    Group group(*communicator_, queue);
    for (std::size_t t = 0; t < in.size(); ++t) {
      communicator_->send(in[t].data, in[t].shape.elements(), in[t].dtype, next, queue);
      communicator_->receive(out[t].data, out[t].shape.elements(), out[t].dtype, previous, queue);
    }
    group.end();
  }

  void check() override { communicator_->check(); }

 private:
  Communicator* communicator_;
  int ranks_;
};

/// A message over the link of a lane, whose two members are the sender and the receiver.
class SendKernel final : public Kernel {
 public:
  explicit SendKernel(Communicator* communicator) : communicator_(communicator) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> /*out*/, void* /*workspace*/, NativeQueue queue) override {
    communicator_->send(in[0].data, in[0].shape.elements(), in[0].dtype, 1 - communicator_->rank(), queue);
  }

  void check() override { communicator_->check(); }

 private:
  Communicator* communicator_;
};

class ReceiveKernel final : public Kernel {
 public:
  explicit ReceiveKernel(Communicator* communicator) : communicator_(communicator) {}
  void launch(std::span<const Buffer> /*in*/, std::span<const Buffer> out, void* /*workspace*/, NativeQueue queue) override {
    communicator_->receive(out[0].data, out[0].shape.elements(), out[0].dtype, 1 - communicator_->rank(), queue);
  }

  void check() override { communicator_->check(); }

 private:
  Communicator* communicator_;
};

}  // namespace

std::unique_ptr<Kernel> make_all_reduce_kernel(Communicator* communicator) {
  return std::make_unique<AllReduceKernel>(communicator);
}

std::unique_ptr<Kernel> make_reduce_scatter_kernel(const KernelRequest& request, Communicator* communicator, int ranks) {
  return std::make_unique<PartsKernel>(request, false, communicator, ranks);
}

std::unique_ptr<Kernel> make_all_gather_kernel(const KernelRequest& request, Communicator* communicator, int ranks) {
  return std::make_unique<PartsKernel>(request, true, communicator, ranks);
}

std::unique_ptr<Kernel> make_all_to_all_kernel(const KernelRequest& request, Communicator* communicator, int ranks) {
  return std::make_unique<ExchangeKernel>(request, communicator, ranks);
}

std::unique_ptr<Kernel> make_shift_kernel(Communicator* communicator, int ranks) {
  return std::make_unique<ShiftKernel>(communicator, ranks);
}

std::unique_ptr<Kernel> make_send_kernel(Communicator* communicator) {
  return std::make_unique<SendKernel>(communicator);
}

std::unique_ptr<Kernel> make_receive_kernel(Communicator* communicator) {
  return std::make_unique<ReceiveKernel>(communicator);
}

}  // namespace consist::ops
