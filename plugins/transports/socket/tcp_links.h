// Messages between the members of a group over TCP: one connection per pair of members.
#pragma once

#include <poll.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "consist/host_transport.h"
#include "consist/job.h"
#include "consist/socket.h"

namespace consist {

class TcpLinks final : public PointToPoint {
 public:
  /// `sockets[i]` is connected to member i; the own entry is empty. `ranks[i]` is the rank of member i in the job, which outlives
  /// this.
  TcpLinks(Job& job, std::string group, int index, std::vector<int> ranks, std::vector<network::Socket> sockets);

  int rank() const noexcept override { return index_; }
  int size() const noexcept override { return static_cast<int>(ranks_.size()); }
  Ticket post_send(int to, const void* data, std::size_t bytes) override;
  Ticket post_receive(int from, void* data, std::size_t bytes) override;
  void wait_sent(int to, Ticket ticket) override;
  void wait_received(int from, Ticket ticket) override;
  void abandon() noexcept override;
  std::string name(int member) const override { return "rank " + std::to_string(ranks_.at(static_cast<std::size_t>(member))); }
  const std::string& group() const noexcept override { return group_; }
  std::string verified_path() const override { return path_; }
  std::int64_t bytes_sent() const noexcept override { return bytes_sent_; }

 private:
  static constexpr std::size_t at_once = 8;
  /// Operations of one direction, in order; a ring buffer.
  template <typename Byte>
  struct Pending {
    struct Operation {
      Byte* data;
      std::size_t bytes;  // that have not moved yet
    };
    std::array<Operation, max_posted> operations;
    Ticket posted = 0;
    Ticket finished = 0;

    bool empty() const { return posted == finished; }
    Operation& at(Ticket ticket) { return operations[ticket % max_posted]; }
    /// Where the next bytes are or go, up to at_once operations of them.
    std::size_t pieces(std::array<iovec, at_once>& list) {
      std::size_t count = 0;
      for (Ticket ticket = finished; ticket < posted && count < list.size(); ++ticket) {
        if (const Operation& next = at(ticket); next.bytes > 0)
          list[count++] = {const_cast<void*>(static_cast<const void*>(next.data)), next.bytes};
      }
      return count;
    }
    void count_moved(std::size_t bytes) {
      for (Ticket ticket = finished; bytes > 0; ++ticket) {
        Operation& next = at(ticket);
        const std::size_t part = std::min(bytes, next.bytes);
        next.data += part;
        next.bytes -= part;
        bytes -= part;
      }
      drop_finished();
    }
    void drop_finished() {
      while (!empty() && at(finished).bytes == 0) ++finished;
    }
  };
  struct Connection {
    network::Socket socket;
    Pending<const std::byte> out;
    Pending<std::byte> in;
    std::uint64_t moved = 0;  // bytes, both ways: grows as long as the member is alive
    bool held_back = true;    // nothing has been tried of what is pending in `out`
  };

  Connection& connection(int member);
  template <typename Byte>
  Ticket post(Pending<Byte>& pending, Byte* data, std::size_t bytes);
  template <typename Byte>
  void wait(int member, const Pending<Byte>& pending, Ticket ticket);
  bool pump();
  bool pump_out(int member, Connection& connection);
  bool pump_in(int member, Connection& connection);
  /// Counts what has moved of the first of `pending`; whether anything has.
  template <typename Byte>
  bool advance(int member, Connection& peer, Pending<Byte>& pending, const network::Moved& moved);
  void require_open() const;
  void block();
  [[noreturn]] void broken(int member, const std::string& how);
  std::string describe_path() const;

  Job& job_;
  const std::string group_;
  const int index_;
  const std::vector<int> ranks_;
  std::vector<Connection> connections_;
  std::vector<pollfd> polled_;  // as large as it gets from the start
  std::int64_t bytes_sent_ = 0;
  bool abandoned_ = false;
  std::string path_;
};

}  // namespace consist
