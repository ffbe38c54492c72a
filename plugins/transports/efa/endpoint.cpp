#include "plugins/transports/efa/endpoint.h"

#include <netinet/in.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <bit>
#include <set>
#include <thread>
#include <vector>

#include "consist/error.h"

namespace consist::efa {
namespace {

using Clock = std::chrono::steady_clock;

/// An address of IP that only this machine reaches.
bool is_loopback(const fi_info& info) {
  if (info.src_addr == nullptr) return false;
  if (info.addr_format == FI_SOCKADDR_IN) {
    return ntohl(static_cast<const sockaddr_in*>(info.src_addr)->sin_addr.s_addr) >> 24U == 127;
  }
  if (info.addr_format == FI_SOCKADDR_IN6)
    return IN6_IS_ADDR_LOOPBACK(&static_cast<const sockaddr_in6*>(info.src_addr)->sin6_addr);
  return false;
}

/// An address of IPv6 that means nothing without the interface that it belongs to.
bool is_link_local(const fi_info& info) {
  return info.addr_format == FI_SOCKADDR_IN6 && info.src_addr != nullptr &&
         IN6_IS_ADDR_LINKLOCAL(&static_cast<const sockaddr_in6*>(info.src_addr)->sin6_addr);
}

}  // namespace

Endpoint::Endpoint(const Libfabric& library, const EndpointRequest& request) : library_(library) {
  choose(request);
  try {
    open();
  } catch (...) {
    close();
    throw;
  }
}

Endpoint::~Endpoint() {
  close();
}

void Endpoint::choose(const EndpointRequest& request) {
  std::string reason;
  const Info all = find_endpoints(library_, request.provider, false, reason);
  if (!all) {
    throw UnavailableError("libfabric " + library_.version_text() + " (" + library_.path + ") offers no endpoint of provider '" +
                           request.provider + "': " + reason);
  }
  const bool tcp = request.provider == "tcp";
  std::vector<const fi_info*> fitting;
  std::set<std::string> names, taken;
  for (const fi_info* info = all.get(); info != nullptr; info = info->next) {
    const std::string name = info->domain_attr->name;
    names.insert(name);
    if (!request.device.empty() && name != request.device) continue;
    if (tcp && (is_link_local(*info) || (request.device.empty() && is_loopback(*info) != request.within_machine))) continue;
    // The first of a device is the one that libfabric prefers. Of tcp all members must take the same family of addresses: IPv4,
    // unless there is none.
    if (!tcp && !taken.insert(name).second) continue;
    fitting.push_back(info);
  }
  if (tcp) {
    std::stable_partition(fitting.begin(), fitting.end(), [](const fi_info* i) { return i->addr_format == FI_SOCKADDR_IN; });
  }
  if (fitting.empty()) {
    std::string known;
    for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
    throw UsageError((request.device.empty() ? "no device" : "--efa.device is '" + request.device + "', but no such device") +
                     (" of libfabric's provider '" + request.provider + "' fits; it has " + known));
  }
  const fi_info* const chosen = tcp ? fitting.front() : fitting[static_cast<std::size_t>(request.local_rank) % fitting.size()];
  info_ = Info(library_.dupinfo(chosen), FreeInfo{&library_});
  if (!info_) throw SystemError("libfabric has no memory for a description of a device");
  provider_ = info_->fabric_attr->prov_name;
  device_ = info_->domain_attr->name;
  // "tcp" itself or layered: "tcp;ofi_rxm". FI_HOOK and the like may put something else in its place.
  if (provider_ != request.provider && !provider_.starts_with(request.provider + ";")) {
    throw UnavailableError("asked for libfabric's provider " + request.provider + ", got " + provider_);
  }
  if (std::countl_zero(info_->ep_attr->mem_tag_format) > 64 - tag_bits) {
    throw UnavailableError("libfabric's provider " + provider_ + " has tags of less than " + std::to_string(tag_bits) + " bits");
  }
}

void Endpoint::open() {
  check(library_.fabric(info_->fabric_attr, &fabric_, nullptr), "fi_fabric");
  check(fi_domain(fabric_, info_.get(), &domain_, nullptr), "fi_domain");
  fi_av_attr addresses{};
  addresses.type = FI_AV_TABLE;
  check(fi_av_open(domain_, &addresses, &addresses_, nullptr), "fi_av_open");
  fi_cq_attr queue{};
  queue.format = FI_CQ_FORMAT_MSG;
  queue.wait_obj = FI_WAIT_UNSPEC;
  can_block_ = fi_cq_open(domain_, &queue, &queue_, nullptr) == 0;
  if (!can_block_) {  // provider efa: nobody wakes us, so that waiting is asking again and again
    queue.wait_obj = FI_WAIT_NONE;
    check(fi_cq_open(domain_, &queue, &queue_, nullptr), "fi_cq_open");
  }
  check(fi_endpoint(domain_, info_.get(), &endpoint_, nullptr), "fi_endpoint");
  check(fi_ep_bind(endpoint_, &addresses_->fid, 0), "fi_ep_bind of the addresses");
  check(fi_ep_bind(endpoint_, &queue_->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind of the completion queue");
  check(fi_enable(endpoint_), "fi_enable");
}

void Endpoint::close() noexcept {
  for (fid* object : {endpoint_ == nullptr ? nullptr : &endpoint_->fid, queue_ == nullptr ? nullptr : &queue_->fid,
                      addresses_ == nullptr ? nullptr : &addresses_->fid, domain_ == nullptr ? nullptr : &domain_->fid,
                      fabric_ == nullptr ? nullptr : &fabric_->fid}) {
    if (object != nullptr) fi_close(object);
  }
}

void Endpoint::check(long result, const char* what) const {
  if (result == 0) return;
  throw SystemError(std::string("libfabric ") + library_.version_text() + ", " + provider_ + " on " + device_ + ": " + what +
                    " failed: " + library_.error_text(result));
}

std::string Endpoint::address() const {
  std::string bytes(256, '\0');
  std::size_t length = bytes.size();
  check(fi_getname(&endpoint_->fid, bytes.data(), &length), "fi_getname");
  bytes.resize(length);
  return bytes;
}

fi_addr_t Endpoint::insert(const std::string& address) {
  fi_addr_t number = FI_ADDR_UNSPEC;
  // Providers may read as many bytes as an address of theirs has.
  std::string bytes = address;
  bytes.resize(std::max<std::size_t>(bytes.size(), 256));
  if (fi_av_insert(addresses_, bytes.data(), 1, &number, 0, nullptr) != 1) {
    throw SystemError("libfabric " + library_.version_text() + ", " + provider_ + " on " + device_ +
                      ": a member's address is not one of this provider; do all ranks have the same --efa.provider?");
  }
  return number;
}

bool Endpoint::accepted(long result, const char* what) const {
  if (result == -FI_EAGAIN) return false;
  check(result, what);
  return true;
}

bool Endpoint::send(fi_addr_t to, std::uint64_t tag, const void* data, std::size_t bytes, fi_context2* context) {
  return accepted(fi_tsend(endpoint_, data, bytes, nullptr, to, tag, context), "fi_tsend");
}

bool Endpoint::receive(fi_addr_t from, std::uint64_t tag, void* data, std::size_t bytes, fi_context2* context) {
  return accepted(fi_trecv(endpoint_, data, bytes, nullptr, from, tag, 0, context), "fi_trecv");
}

std::size_t Endpoint::take(long result, std::span<Completion> finished) {
  if (result == -FI_EAGAIN || result == -FI_EINTR) return 0;
  if (result > 0) {
    for (long i = 0; i < result; ++i) finished[static_cast<std::size_t>(i)] = {entries_[i].op_context, entries_[i].len, {}};
    return static_cast<std::size_t>(result);
  }
  if (result != -FI_EAVAIL) check(result, "reading the completion queue");
  fi_cq_err_entry error{};
  if (fi_cq_readerr(queue_, &error, 0) < 0) return 0;
  const bool too_long = error.err == FI_ETRUNC;
  finished[0] = {error.op_context, error.len + error.olen, too_long ? std::string() : library_.error_text(-error.err)};
  return 1;
}

std::size_t Endpoint::poll(std::span<Completion> finished) {
  return take(fi_cq_read(queue_, entries_, std::min(batch, finished.size())), finished);
}

std::size_t Endpoint::wait(std::span<Completion> finished, std::chrono::milliseconds limit) {
  if (can_block_) {
    return take(fi_cq_sread(queue_, entries_, std::min(batch, finished.size()), nullptr, static_cast<int>(limit.count())),
                finished);
  }
  // A message takes tens of microseconds; who waits for longer leaves the processor to others.
  constexpr std::chrono::milliseconds patience{1};
  constexpr std::chrono::microseconds nap{50};
  const Clock::time_point start = Clock::now();
  for (Clock::time_point now = start; now - start < limit; now = Clock::now()) {
    if (const std::size_t count = poll(finished); count > 0) return count;
    if (now - start < patience) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(nap);
    }
  }
  return 0;
}

}  // namespace consist::efa
