#include "core/checkpoint/file_exchange.h"

#include <poll.h>

#include <algorithm>
#include <exception>
#include <span>
#include <utility>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/wire.h"

namespace consist {
namespace {

using network::Clock;
using network::Socket;
using std::chrono::milliseconds;

constexpr std::size_t piece_bytes = std::size_t{1} << 20;
constexpr milliseconds between_checks{100};  // of the job
constexpr std::uint32_t most_header_bytes = 4096;

[[noreturn]] void blame(JoinedJob& job, int rank, const std::string& how) {
  job.blame(rank, "sending a snapshot between ranks " + std::to_string(job.rank()) + " and " + std::to_string(rank) + ": " + how);
  std::terminate();  // the compiler does not know that a virtual function never returns
}

/// A connection to another rank, on which each call moves all of its bytes.
class Link {
 public:
  Link(JoinedJob& job, int rank, const Socket& socket) : job_(job), rank_(rank), socket_(socket) {}

  void send(std::span<const std::byte> bytes) const {
    move_all(bytes, POLLOUT, [this](std::span<const std::byte> rest) { return network::try_send(socket_, rest); });
  }
  void receive(std::span<std::byte> bytes) const {
    move_all(bytes, POLLIN, [this](std::span<std::byte> rest) { return network::try_receive(socket_, rest); });
  }

 private:
  template <typename Bytes, typename Try>
  void move_all(Bytes bytes, short events, const Try& attempt) const {
    auto deadline = Clock::now() + job_.timeout();
    while (!bytes.empty()) {
      const network::Moved moved = attempt(bytes);
      bytes = bytes.subspan(moved.bytes);
      if (bytes.empty()) return;
      if (moved.closed) blame(job_, rank_, network::describe_error(moved.error));
      if (moved.bytes > 0) {
        deadline = Clock::now() + job_.timeout();
        continue;
      }
      job_.check();
      if (Clock::now() >= deadline) blame(job_, rank_, "no byte has moved for the job's timeout");
      network::wait_for(socket_, events, std::min(deadline, Clock::now() + between_checks));
    }
  }

  JoinedJob& job_;
  const int rank_;
  const Socket& socket_;
};

CheckpointFile receive_file(const Link& link, const CheckpointFile& file, const std::string& folder) {
  AtomicFile output(folder + "/" + file.name);
  output.reserve(file.bytes);
  std::vector<std::byte> piece(piece_bytes);
  for (std::int64_t left = file.bytes; left > 0;) {
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(left, piece_bytes));
    link.receive(std::span(piece).first(count));
    output.write(piece.data(), count);
    left -= static_cast<std::int64_t>(count);
  }
  output.commit();
  return file;
}

}  // namespace

FileExchange::FileExchange(JoinedJob& job) : job_(job) {
  const std::vector<std::string> machines = job.all_gather("files.machines", network::machine_identity(), job.timeout());
  Socket listener = network::listen_for(machines);
  const std::string own = network::contact_of(listener).encode();
  gate_ =
      std::make_unique<network::Gate>(std::move(listener), std::string(job.token()), purpose(job.rank()), "copies of snapshots");
  for (const std::string& text : job.all_gather("files.contacts", own, job.timeout()))
    contacts_.push_back(network::Contact::decode(text));
}

std::string FileExchange::purpose(int to) const {
  return "files/" + std::to_string(job_.generation()) + "/to/" + std::to_string(to);
}

void FileExchange::send(int to, const std::string& folder, const std::optional<CheckpointFile>& file) const {
  const network::Contact& there = contacts_[static_cast<std::size_t>(to)];
  const std::vector<std::string> ways = network::ways_to(there, contacts_[static_cast<std::size_t>(job_.rank())]);
  const std::string where = purpose(to), claim = network::WireWriter().integer(static_cast<std::int32_t>(job_.rank())).take();
  Socket socket;
  try {
    socket = network::connect_and_prove(ways, there.port,
                                        {.secret = job_.token(), .purpose = where, .claim = claim, .timeout = job_.timeout()},
                                        Clock::now() + job_.timeout(), [this] { job_.check(); });
  } catch (const SystemError& error) {
    blame(job_, to, error.what());
  }
  const Link link(job_, to, socket);
  const std::string header = network::WireWriter().text(file ? to_text(*file) : "").take();
  link.send(std::as_bytes(std::span(header)));
  if (!file) return;
  const InputFile input(folder + "/" + file->name);
  std::vector<std::byte> piece(piece_bytes);
  for (std::int64_t at = 0; at < file->bytes;) {
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(file->bytes - at, piece_bytes));
    input.read(at, piece.data(), count);
    link.send(std::span(piece).first(count));
    at += static_cast<std::int64_t>(count);
  }
}

std::vector<Socket> FileExchange::accept_all(const std::vector<int>& from) {
  std::vector<Socket> sockets(from.size());
  const auto deadline = Clock::now() + job_.timeout();
  for (std::size_t missing = from.size(); missing > 0;) {
    job_.check();
    if (Clock::now() >= deadline) {
      const auto first = std::ranges::find_if(sockets, [](const Socket& socket) { return !socket; }) - sockets.begin();
      blame(job_, from[static_cast<std::size_t>(first)], "it did not connect in time");
    }
    std::vector<pollfd> entries;
    gate_->watch(entries);
    poll(entries.data(), entries.size(), static_cast<int>(between_checks.count()));
    for (network::Admitted& admitted : gate_->serve()) {
      const auto rank = network::WireReader(admitted.claim).integer<std::int32_t>();
      const auto found = std::ranges::find(from, rank);
      Socket* const socket = found == from.end() ? nullptr : &sockets[static_cast<std::size_t>(found - from.begin())];
      if (socket == nullptr || *socket)
        throw ProgramError("rank " + std::to_string(rank) + " sends a file to rank " + std::to_string(job_.rank()) +
                           ", which does not expect it");
      *socket = std::move(admitted.socket);
      --missing;
    }
  }
  return sockets;
}

std::vector<CheckpointFile> FileExchange::receive(const std::vector<int>& from, const std::string& folder) {
  const std::vector<Socket> sockets = accept_all(from);
  std::vector<CheckpointFile> files;
  for (std::size_t n = 0; n < from.size(); ++n) {
    const Link link(job_, from[n], sockets[n]);
    std::uint32_t bytes = 0;
    link.receive(std::as_writable_bytes(std::span(&bytes, 1)));
    if (bytes > most_header_bytes) blame(job_, from[n], "a header of " + std::to_string(bytes) + " bytes");
    std::string header(bytes, '\0');
    link.receive(std::as_writable_bytes(std::span(header)));
    if (!header.empty()) files.push_back(receive_file(link, parse_checkpoint_file(header), folder));
  }
  return files;
}

}  // namespace consist
