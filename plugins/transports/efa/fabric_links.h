// Messages between the members of a group over libfabric's tagged messages.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "consist/host_transport.h"
#include "consist/job.h"
#include "plugins/transports/efa/endpoint.h"

namespace consist::efa {

/// The data that one end of a pair needs of the other.
struct Partner {
  fi_addr_t address = FI_ADDR_UNSPEC;
  std::uint64_t tag_out = 0;  ///< secrets that make up the tags of messages to and from it; see FabricLinks
  std::uint64_t tag_in = 0;
};

/// A message is received only if its tag has the 46 secret bits of its pair and direction and, in the lower 16, its number: who
/// reaches the endpoint and does not know the secret cannot put a message in the place of a member's.
class FabricLinks final : public PointToPoint {
 public:
  /// `partners[i]` is member i; the own entry is not used. `ranks[i]` is the rank of member i in the job, which outlives this. A
  /// group of one member needs neither endpoint nor partners.
  FabricLinks(Job& job, std::string group, int index, std::vector<int> ranks, std::unique_ptr<Endpoint> endpoint,
              std::vector<Partner> partners, std::string path);
  /// Waits briefly until the others have what was sent to them.
  ~FabricLinks() override;

  int rank() const noexcept override { return index_; }
  int size() const noexcept override { return static_cast<int>(ranks_.size()); }
  Ticket post_send(int to, const void* data, std::size_t bytes) override;
  Ticket post_receive(int from, void* data, std::size_t bytes) override;
  void wait_sent(int to, Ticket ticket) override;
  void wait_received(int from, Ticket ticket) override;
  void abandon() noexcept override;
  std::string name(int member) const override { return "rank " + std::to_string(ranks_.at(static_cast<std::size_t>(member))); }
  const std::string& group() const noexcept override { return group_; }
  std::size_t best_largest_message() const noexcept override;
  std::string verified_path() const override { return path_; }
  std::int64_t bytes_sent() const noexcept override { return bytes_sent_; }

  static constexpr int number_bits = 16;  ///< of a tag; the secret has the rest of Endpoint::tag_bits

 private:
  struct Peer;
  /// One posted message. libfabric gives the address of `context` back when it is finished.
  struct Operation {
    fi_context2 context;
    Peer* peer;
    std::byte* data;  // of a send it is only read
    std::size_t bytes;
    bool sending;
    bool done;
    Ticket ticket;
  };
  /// Operations of one direction, in order; a ring buffer. Those before `submitted` are libfabric's.
  struct Pending {
    std::array<Operation, max_posted> operations;
    Ticket posted = 0;
    Ticket submitted = 0;
    Ticket finished = 0;
    Ticket wrong = 0;  // the first receive for which another number of bytes came; 0: none
    std::size_t wrong_bytes = 0;
    Operation& at(Ticket ticket) { return operations[ticket % max_posted]; }
  };
  struct Peer {
    int member = 0;
    Partner partner;
    Pending out;
    Pending in;
    std::uint64_t moved = 0;  // bytes, both ways: grows as long as the member is alive
  };

  Peer& peer(int member);
  void require_open() const;
  /// Does `work`; if it throws, the endpoint is closed first: whoever the exception reaches frees the memory into which messages
  /// that are still expected would be received.
  template <typename Work>
  void closing_on_failure(Work work);
  Ticket post(Peer& peer, Pending& pending, bool sending, std::byte* data, std::size_t bytes);
  void wait(int member, Pending& pending, Ticket ticket);
  void wait_finished(int member, const Pending& pending, Ticket ticket);
  bool pump();
  bool submit(Peer& peer, Pending& pending);
  void settle(std::size_t count);
  void say_goodbye();
  [[noreturn]] void broken(int member, const std::string& how);

  Job& job_;
  const std::string group_;
  const int index_;
  const std::vector<int> ranks_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by member; null for this one
  std::vector<std::byte> goodbyes_;           // the others', and the own one
  std::unique_ptr<Endpoint> endpoint_;        // below the memory that it knows: it is gone first
  std::array<Completion, 16> completions_;
  bool broken_ = false;
  std::int64_t bytes_sent_ = 0;
  const std::string path_;
};

}  // namespace consist::efa
