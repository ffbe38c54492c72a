#include "plugins/transports/nccl/alone.h"

#include "consist/error.h"

namespace consist::nccl {
namespace {

class AloneCommunicator final : public Communicator {
 public:
  explicit AloneCommunicator(const Driver& driver) : driver_(driver) {}
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return 1; }
  void all_reduce(void* /*data*/, std::int64_t /*count*/, DType dtype, NativeQueue /*queue*/) override { check_summed(dtype); }
  void reduce_scatter(const void* input, void* output, std::int64_t count, DType dtype, NativeQueue queue) override {
    check_summed(dtype);
    copy(input, output, count, dtype, queue);
  }
  void all_gather(const void* input, void* output, std::int64_t count, DType dtype, NativeQueue queue) override {
    copy(input, output, count, dtype, queue);
  }
  void all_to_all(const void* input, std::int64_t /*input_stride*/, void* output, std::int64_t /*output_stride*/,
                  std::int64_t count, DType dtype, NativeQueue queue) override {
    copy(input, output, count, dtype, queue);
  }
  void broadcast(void* /*data*/, std::int64_t /*count*/, DType /*dtype*/, int root, NativeQueue /*queue*/) override {
    if (root != 0) throw ProgramError("a broadcast from member " + std::to_string(root) + " of a group of one");
  }
  void send(const void* /*data*/, std::int64_t /*count*/, DType /*dtype*/, int to, NativeQueue /*queue*/) override { refuse(to); }
  void receive(void* /*data*/, std::int64_t /*count*/, DType /*dtype*/, int from, NativeQueue /*queue*/) override {
    refuse(from);
  }
  std::string verified_path() const override { return "none (one member)"; }
  std::int64_t bytes_sent() const noexcept override { return 0; }

 private:
  static void check_summed(DType dtype) {
    if (dtype != DType::f32 && dtype != DType::bf16) {
      throw ProgramError("cannot sum elements of " + std::string(name_of(dtype)) + "; collectives add f32 and bf16");
    }
  }
  [[noreturn]] static void refuse(int member) {
    throw ProgramError("the only member of a group has no connection to member " + std::to_string(member));
  }
  void copy(const void* input, void* output, std::int64_t count, DType dtype, NativeQueue queue) const {
    if (input == output || count == 0) return;
    driver_.check(driver_.copy(reinterpret_cast<CUdeviceptr>(output), reinterpret_cast<CUdeviceptr>(input),
                               static_cast<std::size_t>(count) * size_of(dtype), static_cast<CUstream>(queue)),
                  "copying on the device");
  }

  const Driver& driver_;
};

}  // namespace

std::unique_ptr<Communicator> make_alone(const Driver& driver) {
  return std::make_unique<AloneCommunicator>(driver);
}

}  // namespace consist::nccl
