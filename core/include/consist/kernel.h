// Kernels: how a device executes instructions. Made when a program is prepared, launched every step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "consist/export.h"
#include "consist/program.h"

namespace consist {

/// A device's own handle of a queue: cudaStream_t on `cuda`; null on `cpu`, where a launch returns when the work is done.
using NativeQueue = void*;

/// One local tensor as a kernel sees it: row-major, and dense but for what Op::takes_strided_view and makes_strided_view allow.
/// An absent optional tensor has data == nullptr, dtype u8 and shape [0], in requests and launches alike.
struct Buffer {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
  std::int64_t row_stride = 0;              ///< see Tensor::row_stride; 0: dense; the same in request and launch
  MemorySpace space = MemorySpace::device;  ///< where `data` lies; the same in request and launch

  /// Elements from the start of a row to the start of the next, of dense tensors, too.
  std::int64_t leading_dimension() const noexcept { return row_stride != 0 ? row_stride : shape.last(); }

  template <typename T>
  T* as() const noexcept {
    return static_cast<T*>(data);
  }
  bool absent() const noexcept { return dtype == DType::u8 && shape.elements() == 0; }
};

/// A request for a kernel: local types (dtype and shape; data is null) and the attributes.
struct KernelRequest {
  std::string_view op;
  std::span<const Buffer> inputs;
  std::span<const Buffer> outputs;
  const Attributes& attributes;
  /// Origins of the rank's slices in the logical tensors (LocalPart::origin), for kernels that depend on positions, such as those
  /// of a slice of a vocabulary. Empty: all begin at 0.
  std::span<const Origin> input_origins = {};
  std::span<const Origin> output_origins = {};
  /// The kind of the device that runs it: "cpu", whose memory the host reads and writes, or "cuda". With Buffer::space it
  /// determines the memory that a collective's kernel gets. Empty: not known (tests).
  std::string_view device = {};
};

/// Instructions of one queue with equal requests share a kernel, so it must not keep data of one instruction from launch to
/// launch. THREADS: launched from the one thread that owns its queue, never concurrently with itself. launch() must not allocate,
/// nor wait for the host.
class CONSIST_API Kernel {
 public:
  virtual ~Kernel();
  /// Scratch needed during a launch; planned and passed by the executor, 256-byte aligned. Constant.
  virtual std::int64_t workspace_bytes() const { return 0; }
  virtual void launch(std::span<const Buffer> inputs, std::span<const Buffer> outputs, void* workspace, NativeQueue queue) = 0;
  /// Called by an asynchronous device after each step has finished, also when the step was replayed without launch(): throws a
  /// failure since then that launch() could not throw (PeerError).
  virtual void check();
};

}  // namespace consist
