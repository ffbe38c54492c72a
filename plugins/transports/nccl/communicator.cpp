#include "plugins/transports/nccl/communicator.h"

#include <cstdlib>
#include <stop_token>
#include <utility>

#include "consist/error.h"
#include "consist/log.h"
#include "plugins/transports/nccl/log_capture.h"
#include "plugins/transports/nccl/process_settings.h"

namespace consist::nccl {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds watch_interval{50};
constexpr std::chrono::milliseconds release_interval{5};
constexpr std::chrono::milliseconds release_before_abort{200};

ncclDataType_t summed_type(DType dtype) {
  if (dtype == DType::f32) return ncclFloat32;
  if (dtype == DType::bf16) return ncclBfloat16;
  throw ProgramError("cannot sum elements of " + std::string(name_of(dtype)) + "; collectives add f32 and bf16");
}

std::size_t bytes_of(std::int64_t count, DType dtype) {
  return static_cast<std::size_t>(count) * size_of(dtype);
}

CUcontext current_context(const Driver& driver) {
  CUcontext context = nullptr;
  driver.check(driver.current_context(&context), "asking for the current context");
  if (context == nullptr) throw ProgramError("a CUDA transport was asked to connect before a device was opened on this thread");
  return context;
}

}  // namespace

NcclCommunicator::NcclCommunicator(Job& job, GroupRequest group, const Library& library, const Driver& driver,
                                   const ncclUniqueId& id, const std::string& network)
    : job_(job),
      group_(std::move(group)),
      library_(library),
      driver_(driver),
      context_(current_context(driver)),
      handle_(std::in_place, job_, group_, library_, id, network),
      stall_(std::in_place, driver),
      path_("not verified"),
      progress_at_(Clock::now()) {
  watchdog_ = std::thread([this] { watch(); });
}

NcclCommunicator::~NcclCommunicator() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  watchdog_.join();
  CUcontext before = nullptr;
  driver_.current_context(&before);
  driver_.set_current_context(context_);
  // Destroying waits for the device, which may wait for a member that never comes. A rank that ends by an error has not told the
  // others yet.
  if (job_.failed() || std::uncaught_exceptions() > 0 || stall_->look().busy) handle_->abort();
  copies_.reset();
  stall_.reset();
  handle_.reset();
  driver_.set_current_context(before);
}

template <typename Call>
void NcclCommunicator::enqueue(const char* what, NativeQueue queue, Call call) {
  if (failed_.load()) rethrow();
  const auto stream = static_cast<cudaStream_t>(queue);
  if (!in_group_) stall_->before(stream);
  check_result(what, call(handle_->get(), stream));
  if (!in_group_) stall_->after(stream);
}

template <typename Call>
void NcclCommunicator::enqueue_copies(NativeQueue queue, Call call) {
  if (failed_.load()) rethrow();
  const auto stream = static_cast<cudaStream_t>(queue);
  stall_->before(stream);
  call(stream);
  stall_->after(stream);
}

void NcclCommunicator::use_copy_engines(std::size_t staging, std::size_t least_part) {
  auto copies = std::make_unique<PeerCopies>(driver_, job_, group_, staging);
  const std::lock_guard lock(mutex_);  // the watchdog may come to release them
  copies_ = std::move(copies);
  least_part_ = least_part;
}

void NcclCommunicator::check_result(const char* what, ncclResult_t result) {
  if (result == ncclSuccess) return;
  if (failed_.load()) rethrow();
  job_.check();
  const std::string text = error_text(library_, what, result, handle_->get());
  if (result == ncclRemoteError || result == ncclSystemError) job_.blame(suspect(group_), text);
  throw SystemError(text);
}

void NcclCommunicator::group_begin(NativeQueue queue) {
  if (failed_.load()) rethrow();
  stall_->before(static_cast<cudaStream_t>(queue));
  check_result("ncclGroupStart", library_.group_start());
  in_group_ = true;
  gathered_.clear();
  scattered_.clear();
  exchanged_.clear();
}

void NcclCommunicator::group_end(NativeQueue queue) {
  const auto stream = static_cast<cudaStream_t>(queue);
  std::size_t gathered = 0, scattered = 0, exchanged = 0;
  for (const Parts& parts : gathered_) gathered += parts.bytes();
  for (const Parts& parts : scattered_) scattered += parts.bytes();
  for (const Parts& parts : exchanged_) exchanged += parts.bytes();
  const bool copy_gathered = copies_part(gathered), copy_scattered = copies_part(scattered),
             copy_exchanged = copies_part(exchanged);
  for (const Parts& parts : gathered_) {
    if (!copy_gathered) nccl_gather(parts, queue);
  }
  for (const Parts& parts : scattered_) {
    if (!copy_scattered) nccl_scatter(parts, queue);
  }
  for (const Parts& parts : exchanged_) {
    if (!copy_exchanged) nccl_exchange(parts, queue);
  }
  in_group_ = false;
  check_result("ncclGroupEnd", library_.group_end());
  if (copy_gathered) copies_->gather(gathered_, stream);
  if (copy_scattered) copies_->scatter(scattered_, stream);
  if (copy_exchanged) copies_->all_to_all(exchanged_, stream);
  stall_->after(stream);
}

void NcclCommunicator::all_reduce(void* data, std::int64_t count, DType dtype, NativeQueue queue) {
  const ncclDataType_t type = summed_type(dtype);
  enqueue("ncclAllReduce", queue, [&](ncclComm_t comm, cudaStream_t stream) {
    return library_.all_reduce(data, data, static_cast<std::size_t>(count), type, ncclSum, comm, stream);
  });
}

void NcclCommunicator::reduce_scatter(const void* input, void* output, std::int64_t count, DType dtype, NativeQueue queue) {
  const Parts parts{input, output, count, dtype};
  if (copies_ && in_group_) return scattered_.push_back(parts);
  if (!copies_part(parts.bytes())) return nccl_scatter(parts, queue);
  enqueue_copies(queue, [&](CUstream stream) { copies_->scatter({&parts, 1}, stream); });
}

void NcclCommunicator::nccl_scatter(const Parts& parts, NativeQueue queue) {
  const ncclDataType_t type = summed_type(parts.dtype);
  enqueue("ncclReduceScatter", queue, [&](ncclComm_t comm, cudaStream_t stream) {
    return library_.reduce_scatter(parts.input, parts.output, static_cast<std::size_t>(parts.count), type, ncclSum, comm, stream);
  });
}

void NcclCommunicator::all_gather(const void* input, void* output, std::int64_t count, DType dtype, NativeQueue queue) {
  const Parts parts{input, output, count, dtype};
  if (copies_ && in_group_) return gathered_.push_back(parts);
  if (!copies_part(parts.bytes())) return nccl_gather(parts, queue);
  enqueue_copies(queue, [&](CUstream stream) { copies_->gather({&parts, 1}, stream); });
}

// Data that only moves is moved as bytes.
void NcclCommunicator::nccl_gather(const Parts& parts, NativeQueue queue) {
  enqueue("ncclAllGather", queue, [&](ncclComm_t comm, cudaStream_t stream) {
    return library_.all_gather(parts.input, parts.output, parts.bytes(), ncclUint8, comm, stream);
  });
}

void NcclCommunicator::all_to_all(const void* input, std::int64_t input_stride, void* output, std::int64_t output_stride,
                                  std::int64_t count, DType dtype, NativeQueue queue) {
  const Parts parts{input, output, count, dtype, bytes_of(input_stride, dtype), bytes_of(output_stride, dtype)};
  if (copies_ && in_group_) return exchanged_.push_back(parts);
  if (!copies_part(parts.bytes())) return nccl_exchange(parts, queue);
  enqueue_copies(queue, [&](CUstream stream) { copies_->all_to_all({&parts, 1}, stream); });
}

// NCCL has no call for it: a group of messages, that to oneself included.
void NcclCommunicator::nccl_exchange(const Parts& parts, NativeQueue queue) {
  enqueue("ncclSend with ncclRecv", queue, [&](ncclComm_t comm, cudaStream_t stream) {
    library_.group_start();
    ncclResult_t failed = ncclSuccess;
    for (int member = 0; member < size(); ++member) {
      const auto at = static_cast<std::size_t>(member);
      const ncclResult_t sent = library_.send(static_cast<const char*>(parts.input) + at * parts.input_stride, parts.bytes(),
                                              ncclUint8, member, comm, stream);
      const ncclResult_t received = library_.receive(static_cast<char*>(parts.output) + at * parts.output_stride, parts.bytes(),
                                                     ncclUint8, member, comm, stream);
      if (failed == ncclSuccess) failed = sent != ncclSuccess ? sent : received;
    }
    const ncclResult_t all = library_.group_end();
    return failed != ncclSuccess ? failed : all;
  });
}

void NcclCommunicator::broadcast(void* data, std::int64_t count, DType dtype, int root, NativeQueue queue) {
  enqueue("ncclBroadcast", queue, [&](ncclComm_t comm, cudaStream_t stream) {
    return library_.broadcast(data, data, bytes_of(count, dtype), ncclUint8, root, comm, stream);
  });
}

void NcclCommunicator::send(const void* data, std::int64_t count, DType dtype, int to, NativeQueue queue) {
  if (!in_group_ && copies_message(bytes_of(count, dtype)))
    return enqueue_copies(queue, [&](CUstream stream) { copies_->send(data, bytes_of(count, dtype), to, stream); });
  enqueue("ncclSend", queue, [&](ncclComm_t comm, cudaStream_t stream) {
    return library_.send(data, bytes_of(count, dtype), ncclUint8, to, comm, stream);
  });
}

void NcclCommunicator::receive(void* data, std::int64_t count, DType dtype, int from, NativeQueue queue) {
  if (!in_group_ && copies_message(bytes_of(count, dtype)))
    return enqueue_copies(queue, [&](CUstream stream) { copies_->receive(data, bytes_of(count, dtype), from, stream); });
  enqueue("ncclRecv", queue, [&](ncclComm_t comm, cudaStream_t stream) {
    return library_.receive(data, bytes_of(count, dtype), ncclUint8, from, comm, stream);
  });
}

void NcclCommunicator::exchange(const void* out, void* in, std::int64_t bytes, NativeQueue queue) {
  const int next = (rank() + 1) % size(), previous = (rank() + size() - 1) % size();
  enqueue("ncclSend with ncclRecv", queue, [&](ncclComm_t comm, cudaStream_t stream) {
    library_.group_start();
    const ncclResult_t sent = library_.send(out, static_cast<std::size_t>(bytes), ncclUint8, next, comm, stream);
    const ncclResult_t received = library_.receive(in, static_cast<std::size_t>(bytes), ncclUint8, previous, comm, stream);
    const ncclResult_t both = library_.group_end();
    return sent != ncclSuccess ? sent : received != ncclSuccess ? received : both;
  });
}

void NcclCommunicator::check() {
  if (failed_.load()) rethrow();
}

void NcclCommunicator::set_verified(std::string path, const Promise& promise, int device, std::size_t log_begin) {
  path_ = std::move(path);
  const std::lock_guard lock(mutex_);
  log_ = WatchedLog{promise, device, log_begin};
}

void NcclCommunicator::rethrow() {
  const std::lock_guard lock(mutex_);
  std::rethrow_exception(failure_);
}

namespace {

/// True if `over` was requested within `timeout`.
bool ends_within(std::chrono::milliseconds timeout, const std::stop_token& over) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  return std::condition_variable_any().wait_for(lock, over, timeout, [&] { return over.stop_requested(); });
}

/// A launch for which a stream has no room left waits inside the driver and keeps all other calls out. Where that stream waits
/// for a member that died, nothing in this process can let it go on: neither NCCL nor we get to it.
[[noreturn]] void end_process(const std::exception_ptr& failure, const std::string& group) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    log::error(std::string(error.what()) + "; the GPU's driver does not let this rank leave group '" + group +
               "', so the process ends here, without more words to its archive");
  }
  std::_Exit(EXIT_FAILURE);
}

}  // namespace

void NcclCommunicator::watch() {
  driver_.set_current_context(context_);
  // Asking for events must not disturb a capture that another thread has begun.
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver_.exchange_capture_mode(&mode);
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, watch_interval, [&] { return stopping_; })) {
    lock.unlock();
    try {
      look_for_trouble();
    } catch (...) {
      const std::jthread last_resort([this, failure = std::current_exception()](const std::stop_token& over) {
        if (!ends_within(job_.timeout(), over)) end_process(failure, group_.name);
      });
      end_waits(std::current_exception());
      return;
    }
    lock.lock();
  }
}

void NcclCommunicator::look_for_trouble() {
  job_.check();
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = library_.async_error(handle_->get(), &state);
  if (asked != ncclSuccess || (state != ncclSuccess && state != ncclInProgress)) {
    const std::string text = error_text(library_, "a collective", asked != ncclSuccess ? asked : state, handle_->get());
    job_.blame(suspect(group_), text);
  }
  look_at_log();
  look_for_stall();
}

void NcclCommunicator::look_at_log() {
  std::unique_lock lock(mutex_);
  // Lines do not name their communicator: where groups of different paths live in one process, they cannot be told apart.
  if (!log_ || !only_path_of_process(log_->promise.path)) return;
  const LogCapture& log = LogCapture::instance();
  if (log.size() == log_->begin) return;
  std::string text = log.text(log_->begin);
  text.resize(text.rfind('\n') + 1);
  log_->begin += text.size();
  const WatchedLog watched = *log_;
  lock.unlock();
  for (const Connection& connection : read_log(text, watched.device).connections) {
    if (keeps_promise(watched.promise, connection)) continue;
    throw SystemError("asked for " + std::string(name_of(watched.promise.path)) + ", but NCCL opened a connection through " +
                      connection.path + " during the run, in group '" + group_.name + "' or one beside it");
  }
}

void NcclCommunicator::look_for_stall() {
  const StallDetector::State state = stall_->look();
  const Clock::time_point now = Clock::now();
  if (!state.busy || state.progress != last_progress_) {
    last_progress_ = state.progress;
    progress_at_ = now;
    return;
  }
  if (now - progress_at_ < job_.timeout()) return;
  const std::string text =
      "a collective of group '" + group_.name + "' has not finished for " + std::to_string(job_.timeout().count() / 1000) + " s";
  job_.blame(suspect(group_), text);
}

/// Streams may wait for members that will not come any more: in NCCL's kernels, which end when it aborts, and for words of copy
/// engines, which are set here; behind one wait there may be the next, of either kind. Aborting frees memory, for which the
/// driver waits until the GPU has nothing left to do, and keeps other threads out meanwhile. So words are set before and beside
/// it.
void NcclCommunicator::end_waits(std::exception_ptr failure) {
  {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(failure);
  }
  failed_.store(true);
  if (!copies_) return handle_->abort();
  std::jthread release([this](const std::stop_token& stop) {
    driver_.set_current_context(context_);
    do copies_->release();
    while (!ends_within(release_interval, stop));
  });
  std::this_thread::sleep_for(release_before_abort);
  handle_->abort();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopping_; });
}

}  // namespace consist::nccl
