// map, reduce, total and margins: kernels that are compiled for their expression, dtypes and form.
#include <algorithm>
#include <numeric>

#include "plugins/devices/common/flat_slice.h"
#include "plugins/devices/common/map_update.h"
#include "plugins/devices/common/reduction.h"
#include "plugins/devices/cuda/kernels/common/launch.h"
#include "plugins/devices/cuda/kernels/common/map_source.h"
#include "plugins/devices/cuda/runtime_code.h"

namespace consist::cuda {
namespace {

using kernels::FlatSlice;

/// A kernel of packs, and one for tensors that do not begin at packs.
class Compiled : public Kernel {
 protected:
  Compiled(const Expressions& f, const KernelRequest& r, const KernelSettings& s, const FlatSlice& slice = {})
      : reads_(kernels::reads_of_inputs(f)), slice_(slice) {
    form_.flat = static_cast<bool>(slice_);
    form_.rounds_bf16 = s.compute_capability >= 80;
    for (std::size_t k = 0; k < r.inputs.size(); ++k) {
      form_.inputs.push_back(r.inputs[k].dtype);
      if (reads_[k] == Reads::same) fit_packs(r.inputs[k]);
    }
    for (const Buffer& output : r.outputs) form_.outputs.push_back(output.dtype);
  }

  /// Narrows packs to 16 bytes of the tensor.
  void fit_packs(const Buffer& of) { widest_ = std::min(widest_, 16 / static_cast<int>(size_of(of.dtype))); }

  /// source(form) for packs of which `together` elements that lie side by side are a multiple, if rows start at packs, too.
  template <typename Source>
  void compile(RuntimeCode& code, const char* name, std::int64_t together, const KernelRequest& r, const Source& source) {
    pack_ = together % widest_ == 0 ? widest_ : 1;
    for (const std::span<const Buffer> of : {std::span<const Buffer>(r.inputs), std::span<const Buffer>(r.outputs)}) {
      for (const Buffer& buffer : of) pack_ = buffer.row_stride % widest_ == 0 ? pack_ : 1;
    }
    form_.pack = pack_;
    packed_ = code.kernel(source(form_), name);
    form_.pack = 1;
    single_ = pack_ == 1 ? packed_ : code.kernel(source(form_), name);
  }

  /// From the one element of a row to that of the next: a dense tensor may be without the dimension of channels.
  static std::int64_t row_step(const Buffer& buffer) { return buffer.row_stride == 0 ? 1 : buffer.row_stride; }
  static bool at_pack(const Buffer& buffer) { return reinterpret_cast<std::uintptr_t>(buffer.data) % 16 == 0; }

  /// Elements that lie side by side begin and end at multiples of it, in rows of `columns` of them.
  std::int64_t together(std::int64_t elements, std::int64_t columns) const {
    return slice_ ? std::gcd(std::gcd(slice_.width, slice_.first), elements) : columns;
  }
  /// The address that the matrix's first element would have, of elements that are a slice of it.
  void* of_matrix(const Buffer& buffer) const {
    return static_cast<char*>(buffer.data) - slice_.first * static_cast<std::int64_t>(size_of(buffer.dtype));
  }

  /// True if what is read in packs begins at packs.
  bool put_inputs(MapOperands& o, std::span<const Buffer> in) const {
    bool aligned = true;
    for (std::size_t k = 0; k < in.size(); ++k) {
      o.in[k] = in[k].data;
      o.in_row[k] = reads_[k] == Reads::row ? row_step(in[k]) : in[k].leading_dimension();
      if (reads_[k] == Reads::same || reads_[k] == Reads::channel) aligned = aligned && at_pack(in[k]);
      if (!slice_ || reads_[k] != Reads::same) continue;
      o.in[k] = of_matrix(in[k]);
      o.in_row[k] = slice_.width;
    }
    return aligned;
  }

  void start(MapOperands& o, int pack, std::int64_t blocks, NativeQueue queue, const char* op) const {
    start(pack == pack_ ? packed_ : single_, o, blocks, queue, op);
  }
  static void start(cudaKernel_t kernel, MapOperands& o, std::int64_t blocks, NativeQueue queue, const char* op) {
    void* arguments[] = {&o};
    cuda::check(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(blocks_of(blocks)), dim3(map_threads), arguments, 0,
                                 stream_of(queue)),
                op);
  }

  std::vector<Reads> reads_;
  FlatSlice slice_;
  MapForm form_;
  int widest_ = 8, pack_ = 1;

 private:
  cudaKernel_t packed_ = nullptr, single_ = nullptr;
};

class Map final : public Compiled {
 public:
  Map(const Expressions& f, const KernelRequest& r, const KernelSettings& s) : Compiled(f, r, s, FlatSlice::of(f, r)) {
    for (std::size_t k = 0; k < r.inputs.size(); ++k) {
      const bool same = reads_[k] == Reads::same, element = reads_[k] == Reads::element;
      form_.rows = form_.rows || (!same && !element) || (same && r.inputs[k].row_stride != 0);
    }
    for (const Buffer& output : r.outputs) {
      form_.rows = form_.rows || output.row_stride != 0;
      fit_packs(output);
    }
    const Shape& shape = r.outputs[0].shape;
    form_.rows = form_.rows || f.reads_channel();
    form_.large = slice_.first + shape.elements() > (std::int64_t{1} << 31);
    compile(*s.runtime_code, map_kernel_name, together(shape.elements(), form_.rows ? shape.last() : shape.elements()), r,
            [&](const MapForm& form) { return map_source(f, form); });
  }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const std::int64_t elements = out[0].shape.elements();
    if (elements == 0) return;
    MapOperands o{};
    bool aligned = put_inputs(o, in);
    for (std::size_t k = 0; k < out.size(); ++k) {
      o.out[k] = slice_ ? of_matrix(out[k]) : out[k].data;
      o.out_row[k] = slice_ ? slice_.width : out[k].leading_dimension();
      aligned = aligned && at_pack(out[k]);
    }
    const int pack = aligned ? pack_ : 1;
    o.packs = elements / pack;
    o.columns = (slice_ ? slice_.width : out[0].shape.last()) / pack;
    o.first = slice_.first / pack;
    start(o, pack, divided_up(o.packs, map_threads * map_unroll), queue, "map");
  }
};

/// A warp for each row; each lane adds up its packs, then the lanes' sums are joined in a fixed order.
class Reduce final : public Compiled {
 public:
  Reduce(const kernels::Reduction& reduction, const KernelRequest& r, const KernelSettings& s)
      : Compiled(reduction.f, r, s), columns_(reduction.columns) {
    form_.large = std::max(r.outputs[0].shape.elements(), columns_) > (std::int64_t{1} << 31);
    compile(*s.runtime_code, reduce_kernel_name, columns_, r,
            [&](const MapForm& form) { return reduce_source(reduction.f, form, reduction.by); });
  }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    MapOperands o{};
    const int pack = put_inputs(o, in) ? pack_ : 1;
    o.out[0] = out[0].data;
    o.out_row[0] = row_step(out[0]);
    o.packs = out[0].shape.elements();
    o.columns = columns_ / pack;
    if (o.packs != 0) start(o, pack, divided_up(o.packs, reduce_rows), queue, "reduce");
  }

 private:
  std::int64_t columns_;
};

/// Sums of tiles, and their sums: all in a fixed order.
class Margins final : public Compiled {
 public:
  Margins(const Expressions& f, const KernelRequest& r, const KernelSettings& s)
      : Compiled(f, r, s, FlatSlice::of_width(r.outputs[1].shape.elements(), f, r)),
        width_(r.outputs[1].shape.elements()),
        elements_(r.inputs[static_cast<std::size_t>(f.first_read(Reads::same))].shape.elements()),
        rows_(elements_ == 0 ? 0 : (slice_.first + elements_ - 1) / width_ - slice_.first / width_ + 1),
        chunk_rows_(std::max<std::int64_t>(64, divided_up(divided_up(rows_, 512), 8) * 8)),
        chunks_(divided_up(rows_, chunk_rows_)),
        tiles_(divided_up(width_, margin_columns)) {
    form_.outputs = {DType::f32};
    compile(*s.runtime_code, margin_tiles_name, together(elements_, width_), r,
            [&](const MapForm& form) { return margin_tiles_source(f, form); });
    sums_ = s.runtime_code->kernel(margin_sums_source(), margin_sums_name);
  }
  std::int64_t workspace_bytes() const override {
    return (chunks_ * width_ + rows_ * tiles_) * static_cast<std::int64_t>(sizeof(float));
  }

  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void* workspace, NativeQueue queue) override {
    MapOperands o{};
    const int pack = put_inputs(o, in) ? pack_ : 1;
    o.out[0] = out[0].absent() ? nullptr : out[0].data;
    o.out[1] = out[1].data;
    o.out[2] = workspace;
    o.out[3] = static_cast<float*>(workspace) + chunks_ * width_;
    o.packs = elements_ / pack;
    o.columns = width_ / pack;
    o.first = slice_.first / pack;
    o.rows = rows_;
    o.chunk_rows = chunk_rows_;
    o.all_rows = out[0].absent() ? 0 : out[0].shape.elements();
    if (chunks_ != 0) start(o, pack, chunks_ * tiles_, queue, "margins");
    o.packs = chunks_;
    o.columns = width_;
    o.first = slice_.first;
    const std::int64_t made = width_ + o.all_rows;
    if (made != 0) start(sums_, o, divided_up(made, map_threads), queue, "margins");
  }

 private:
  std::int64_t width_, elements_, rows_, chunk_rows_, chunks_, tiles_;
  cudaKernel_t sums_ = nullptr;
};

Made make_margins(const KernelRequest& r, const KernelSettings& s) {
  return std::make_unique<Margins>(Expressions::parse(r.attributes.string("f")), r, s);
}

Made make_reduce(const KernelRequest& r, const KernelSettings& s) {
  return std::make_unique<Reduce>(kernels::Reduction(r), r, s);
}

Made make_map(const KernelRequest& r, const KernelSettings& s) {
  return std::make_unique<Map>(Expressions::parse(r.attributes.string("f")), r, s);
}

Made make_map_update(const KernelRequest& r, const KernelSettings& s) {
  // Those in the host's memory are for kernels of the processor, which this device has for some updates only.
  if (std::any_of(r.inputs.begin(), r.inputs.end(), [](const Buffer& b) { return b.space != MemorySpace::device; }))
    return nullptr;
  return std::make_unique<kernels::MapUpdate>(
      r, [&](const Expressions& f, const KernelRequest& request) { return std::make_unique<Map>(f, request, s); },
      [&](const KernelRequest& request) { return make_reduce(request, s); });
}

}  // namespace

CONSIST_KERNEL(map, make_map);
CONSIST_KERNEL(map_in_place, make_map);
CONSIST_KERNEL(margins, make_margins);
CONSIST_KERNEL(reduce, make_reduce);
CONSIST_KERNEL(total, make_reduce);
CONSIST_MAP_UPDATE_KERNELS(make_map_update);

}  // namespace consist::cuda
