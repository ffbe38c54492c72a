#include "core/runtime/collective_kernels.h"

#include "consist/edit.h"
#include "consist/error.h"

namespace consist {
namespace {

std::int64_t bytes_of(const Buffer& buffer) {
  return buffer.shape.elements() * static_cast<std::int64_t>(size_of(buffer.dtype));
}

/// Sums buffers in place. Buffers that lie one behind the other (but for alignment) go as one message, whose gaps are summed
/// along: they belong to the pack and nobody reads them.
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

class ReduceScatterKernel final : public Kernel {
 public:
  explicit ReduceScatterKernel(Communicator* communicator) : communicator_(communicator) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* /*workspace*/, NativeQueue queue) override {
    communicator_->reduce_scatter(in[0].data, out[0].data, out[0].shape.elements(), out[0].dtype, queue);
  }

  void check() override { communicator_->check(); }

 private:
  Communicator* communicator_;
};

class AllGatherKernel final : public Kernel {
 public:
  explicit AllGatherKernel(Communicator* communicator) : communicator_(communicator) {}
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* /*workspace*/, NativeQueue queue) override {
    communicator_->all_gather(in[0].data, out[0].data, in[0].shape.elements(), in[0].dtype, queue);
  }

  void check() override { communicator_->check(); }

 private:
  Communicator* communicator_;
};

/// Parts along `dim` are one contiguous block each only if nothing varies in the dimensions before it.
bool contiguous_parts(const Shape& shape, std::int64_t dim) {
  for (int i = 0; i < dim; ++i) {
    if (shape[i] != 1) return false;
  }
  return true;
}

}  // namespace

std::unique_ptr<Kernel> make_collective_kernel(const KernelRequest& request, Communicator* communicator) {
  if (request.op == "all_reduce") return std::make_unique<AllReduceKernel>(communicator);
  const std::int64_t dim = request.attributes.integer("dim");
  const Shape& whole = request.op == "all_gather" ? request.outputs[0].shape : request.inputs[0].shape;
  if (!contiguous_parts(whole, dim)) {
    throw ProgramError("op '" + std::string(request.op) + "' along dimension " + std::to_string(dim) + " of " + whole.text() +
                       ": its parts are not contiguous, and strided messages are not implemented");
  }
  if (request.op == "reduce_scatter") return std::make_unique<ReduceScatterKernel>(communicator);
  if (request.op == "all_gather") return std::make_unique<AllGatherKernel>(communicator);
  throw ProgramError("there is no kernel for the collective '" + std::string(request.op) + "'");
}

}  // namespace consist
