// map: a kernel that is compiled for its expression, dtypes and form.
#include <algorithm>

#include "plugins/devices/common/map_update.h"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/map_source.h"
#include "plugins/devices/cuda/runtime_code.h"

namespace consist::cuda {
namespace {

class Map final : public Kernel {
 public:
  Map(const Expressions& f, const KernelRequest& r, const KernelSettings& s) : reads_(kernels::reads_of_inputs(f)) {
    form_.rounds_bf16 = s.compute_capability >= 80;
    int widest = 8;
    for (std::size_t k = 0; k < r.inputs.size(); ++k) {
      form_.inputs.push_back(r.inputs[k].dtype);
      const bool same = reads_[k] == Reads::same, element = reads_[k] == Reads::element;
      form_.rows = form_.rows || (!same && !element) || (same && r.inputs[k].row_stride != 0);
      if (same) widest = std::min(widest, 16 / static_cast<int>(size_of(r.inputs[k].dtype)));
    }
    for (const Buffer& output : r.outputs) {
      form_.outputs.push_back(output.dtype);
      form_.rows = form_.rows || output.row_stride != 0;
      widest = std::min(widest, 16 / static_cast<int>(size_of(output.dtype)));
    }
    const Shape& shape = r.outputs[0].shape;
    form_.large = shape.elements() > (std::int64_t{1} << 31);
    pack_ = (form_.rows ? shape.last() : shape.elements()) % widest == 0 ? widest : 1;
    for (const Buffer* of : {r.inputs.data(), r.outputs.data()}) {
      const std::size_t count = of == r.inputs.data() ? r.inputs.size() : r.outputs.size();
      for (std::size_t k = 0; k < count; ++k) pack_ = of[k].row_stride % widest == 0 ? pack_ : 1;
    }
    form_.pack = pack_;
    packed_ = s.runtime_code->kernel(map_source(f, form_), map_kernel_name);
    form_.pack = 1;
    single_ = pack_ == 1 ? packed_ : s.runtime_code->kernel(map_source(f, form_), map_kernel_name);
  }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const std::int64_t elements = out[0].shape.elements();
    if (elements == 0) return;
    MapOperands o{};
    bool aligned = true;
    const auto at_packs = [&](const Buffer& buffer) { return reinterpret_cast<std::uintptr_t>(buffer.data) % 16 == 0; };
    for (std::size_t k = 0; k < in.size(); ++k) {
      o.in[k] = in[k].data;
      o.in_row[k] = in[k].leading_dimension();
      if (reads_[k] == Reads::same || reads_[k] == Reads::channel) aligned = aligned && at_packs(in[k]);
    }
    for (std::size_t k = 0; k < out.size(); ++k) {
      o.out[k] = out[k].data;
      o.out_row[k] = out[k].leading_dimension();
      aligned = aligned && at_packs(out[k]);
    }
    const int pack = aligned ? pack_ : 1;
    o.packs = elements / pack;
    o.columns = out[0].shape.last() / pack;
    void* arguments[] = {&o};
    const unsigned blocks = blocks_of(divided_up(o.packs, map_threads * map_unroll));
    cuda::check(cudaLaunchKernel(reinterpret_cast<const void*>(pack == pack_ ? packed_ : single_), dim3(blocks),
                                 dim3(map_threads), arguments, 0, stream_of(queue)),
                "map");
  }

 private:
  std::vector<Reads> reads_;
  MapForm form_;
  int pack_ = 1;
  cudaKernel_t packed_ = nullptr, single_ = nullptr;
};

Made make_map(const KernelRequest& r, const KernelSettings& s) {
  return std::make_unique<Map>(Expressions::parse(r.attributes.string("f")), r, s);
}

Made make_map_update(const KernelRequest& r, const KernelSettings& s) {
  // Those in the host's memory are for kernels of the processor, which this device has for some updates only.
  if (std::any_of(r.inputs.begin(), r.inputs.end(), [](const Buffer& b) { return b.space != MemorySpace::device; }))
    return nullptr;
  return std::make_unique<kernels::MapUpdate>(
      r, [&](const Expressions& f, const KernelRequest& request) { return std::make_unique<Map>(f, request, s); });
}

}  // namespace

CONSIST_KERNEL(map, make_map);
CONSIST_MAP_UPDATE_KERNELS(make_map_update);

}  // namespace consist::cuda
