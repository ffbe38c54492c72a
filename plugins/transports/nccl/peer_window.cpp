#include "plugins/transports/nccl/peer_window.h"

#include <unistd.h>

#include <cstring>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "consist/error.h"
#include "consist/host_transport.h"

namespace consist::nccl {
namespace {

/// Equal within a process only; numbers of processes may repeat in containers.
const std::string& this_process() {
  static const std::string name = std::to_string(getpid()) + "." + std::to_string(std::random_device()());
  return name;
}

std::string hexadecimal(const CUipcMemHandle& handle) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : handle.reserved) {
    text += digits[static_cast<unsigned char>(byte) >> 4];
    text += digits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

CUipcMemHandle handle_of(const std::string& text) {
  CUipcMemHandle handle{};
  if (text.size() != 2 * sizeof handle.reserved) throw DataError("a member's handle of device memory has the wrong length");
  for (std::size_t i = 0; i < sizeof handle.reserved; ++i)
    handle.reserved[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return handle;
}

/// Returns the texts of `own` of all members, by member. If it throws a SystemError on one of them, all throw that.
std::vector<std::string> exchange_or_fail(Job& job, const GroupRequest& group, const std::string& topic,
                                          const std::function<std::string()>& own) {
  constexpr char failed = '!';
  std::string text;
  try {
    text = own();
  } catch (const SystemError& error) {
    text = failed + std::string(error.what());
  }
  const std::vector<std::string> said = exchange_texts(job, group, topic, text);
  for (std::size_t member = 0; member < said.size(); ++member) {
    if (!said[member].empty() && said[member][0] == failed)
      throw SystemError("rank " + std::to_string(group.ranks[member]) + ": " + said[member].substr(1));
  }
  return said;
}

}  // namespace

PeerWindow::PeerWindow(const Driver& driver, Job& job, const GroupRequest& group, std::size_t bytes)
    : driver_(driver), own_(group.index), address_(group.ranks.size(), 0), opened_(group.ranks.size(), false) {
  try {
    const std::vector<std::string> said = exchange_or_fail(job, group, "nccl.window", [&] { return offer(bytes); });
    // From here on others write: nobody may leave before all have come this far.
    exchange_or_fail(job, group, "nccl.window.open", [&] {
      for (int member = 0; member < static_cast<int>(said.size()); ++member) {
        if (member != own_) open(member, said[static_cast<std::size_t>(member)]);
      }
      return std::string("1");
    });
  } catch (...) {
    close();
    throw;
  }
}

std::string PeerWindow::offer(std::size_t bytes) {
  CUcontext context = nullptr;
  driver_.check(driver_.current_context(&context), "asking for the current context");
  CUdeviceptr memory = 0;
  driver_.check(driver_.allocate(&memory, bytes), "allocating memory that other ranks write to");
  address_[static_cast<std::size_t>(own_)] = memory;
  CUipcMemHandle handle{};
  driver_.check(driver_.export_memory(&handle, memory), "letting other ranks at a piece of device memory (cuIpcGetMemHandle)");
  CUstream stream = nullptr;
  driver_.check(driver_.create_stream(&stream, CU_STREAM_NON_BLOCKING), "making a stream");
  CUresult cleared = driver_.fill(memory, 0, bytes, stream);
  while (cleared == CUDA_SUCCESS && (cleared = driver_.query_stream(stream)) == CUDA_ERROR_NOT_READY) cleared = CUDA_SUCCESS;
  driver_.destroy_stream(stream);
  driver_.check(cleared, "clearing memory that other ranks write to");
  std::ostringstream own;
  own << this_process() << ' ' << reinterpret_cast<std::uintptr_t>(context) << ' ' << memory << ' ' << hexadecimal(handle);
  return own.str();
}

void PeerWindow::open(int member, const std::string& said) {
  std::istringstream words(said);
  std::string process, handle;
  std::uintptr_t context = 0;
  CUdeviceptr address = 0;
  words >> process >> context >> address >> handle;
  if (!words) throw DataError("member " + std::to_string(member) + " says nothing of use about its memory");
  const auto index = static_cast<std::size_t>(member);
  if (process == this_process()) {  // members as threads: their memory has one address for all
    const CUresult result = driver_.enable_peer_access(reinterpret_cast<CUcontext>(context), 0);
    if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
      driver_.check(result, "reaching another GPU's memory (cuCtxEnablePeerAccess)");
    address_[index] = address;
    return;
  }
  driver_.check(driver_.import_memory(&address_[index], handle_of(handle), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                "reaching another rank's memory (cuIpcOpenMemHandle)");
  opened_[index] = true;
}

void PeerWindow::close() noexcept {
  for (std::size_t member = 0; member < address_.size(); ++member) {
    if (opened_[member]) driver_.close_memory(address_[member]);
  }
  if (address_[static_cast<std::size_t>(own_)] != 0) driver_.release(address_[static_cast<std::size_t>(own_)]);
}

PeerWindow::~PeerWindow() {
  close();
}

}  // namespace consist::nccl
