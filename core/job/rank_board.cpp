#include "core/job/rank_board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "consist/error.h"
#include "core/base/monotonic_ns.h"
#include "core/base/system_error.h"

namespace consist {
namespace {

constexpr std::uint64_t board_mark = 0x636f6e7369737431;  // "consist1"
constexpr std::size_t most_reasons = 16, most_why = 500, remembered_steps = 4096;

}  // namespace

struct RankBoard::Content {
  struct Text {
    std::atomic<std::uint32_t> length{0};
    std::array<char, most_why> bytes{};

    void set(std::string_view text) noexcept {
      const std::size_t kept = std::min(text.size(), bytes.size());
      std::memcpy(bytes.data(), text.data(), kept);
      length.store(static_cast<std::uint32_t>(kept), std::memory_order_release);
    }
    std::string get() const {
      return {bytes.data(), std::min<std::size_t>(length.load(std::memory_order_acquire), bytes.size())};
    }
  };

  struct Slot {
    std::atomic<std::int64_t> step{0};
    std::atomic<int> blamed{-1};
    Text why;
  };

  struct Reason {
    int restart = 0, most = 0, rank = -1;
    std::int64_t step = 0;
    Text what;
  };

  struct StepEnd {
    std::atomic<std::int64_t> step{0}, at{0};
  };

  std::uint64_t mark = board_mark;
  int ranks = 0;
  std::int64_t made = monotonic_ns();
  std::atomic<bool> observed{false}, archived{false}, pause{false};
  struct Change {
    std::atomic<bool> told{false};
    int ranks_before = 0, ranks = 0;
    Text left_out, came;
  };
  Change change;
  std::atomic<std::uint64_t> reasons{0}, taken{0};
  std::array<Reason, most_reasons> reason{};
  std::array<StepEnd, remembered_steps> ends{};

  Slot* slots() noexcept { return reinterpret_cast<Slot*>(this + 1); }
  Slot* slot(int rank) noexcept { return rank >= 0 && rank < ranks ? slots() + rank : nullptr; }
};

RankBoard RankBoard::create(int ranks) {
  network::Socket file(memfd_create("consist-ranks", MFD_CLOEXEC));
  const std::size_t bytes = sizeof(Content) + static_cast<std::size_t>(ranks) * sizeof(Content::Slot);
  if (!file || ftruncate(file.fd(), static_cast<off_t>(bytes)) != 0)
    throw SystemError("cannot make memory that is shared with ranks: " + system_error_text(errno));
  return {std::move(file), ranks};
}

RankBoard::RankBoard(network::Socket file, int ranks) : file_(std::move(file)) {
  map(sizeof(Content) + static_cast<std::size_t>(ranks) * sizeof(Content::Slot));
  new (content_) Content;
  content_->ranks = ranks;
  for (int rank = 0; rank < ranks; ++rank) new (content_->slots() + rank) Content::Slot;
}

RankBoard::RankBoard(int fd) : file_(fd) {
  struct stat found {};
  if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode) || found.st_size < static_cast<off_t>(sizeof(Content)))
    throw UsageError("the inherited file descriptor " + std::to_string(fd) + " is no memory of a launcher");
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  map(static_cast<std::size_t>(found.st_size));
  const bool sound = content_->mark == board_mark && content_->ranks > 0 &&
                     bytes_ == sizeof(Content) + static_cast<std::size_t>(content_->ranks) * sizeof(Content::Slot);
  if (sound) return;
  munmap(content_, bytes_);
  throw UsageError("the inherited file descriptor " + std::to_string(fd) + " is the memory of another version's launcher");
}

void RankBoard::map(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.fd(), 0);
  if (memory == MAP_FAILED) throw SystemError("cannot map memory that is shared with ranks: " + system_error_text(errno));
  content_ = static_cast<Content*>(memory);
  bytes_ = bytes;
}

RankBoard::RankBoard(RankBoard&& other) noexcept
    : file_(std::move(other.file_)), content_(std::exchange(other.content_, nullptr)), bytes_(other.bytes_) {}

RankBoard::~RankBoard() {
  if (content_ != nullptr) munmap(content_, bytes_);
}

void RankBoard::begin_step(int rank, std::int64_t step) noexcept {
  if (Content::Slot* const slot = content_->slot(rank)) slot->step = step;
}

void RankBoard::end(int rank, int blamed, std::string_view why) noexcept {
  Content::Slot* const slot = content_->slot(rank);
  if (slot == nullptr) return;
  slot->why.set(why);
  slot->blamed = blamed;
}

void RankBoard::end_step(std::int64_t step) noexcept {
  Content::StepEnd& end = content_->ends[static_cast<std::size_t>(step) % remembered_steps];
  end.at = monotonic_ns();
  end.step = step;
}

std::optional<double> RankBoard::seconds_since_step(std::int64_t step) const noexcept {
  const Content::StepEnd& end = content_->ends[static_cast<std::size_t>(step) % remembered_steps];
  const std::int64_t at = step == 0 ? content_->made : end.at.load();
  if (step != 0 && end.step.load() != step) return std::nullopt;
  return static_cast<double>(monotonic_ns() - at) * 1e-9;
}

void RankBoard::set_observed() noexcept {
  content_->observed = true;
}

bool RankBoard::observed() const noexcept {
  return content_->observed;
}

void RankBoard::set_archived() noexcept {
  content_->archived = true;
}

bool RankBoard::archived() const noexcept {
  return content_->archived;
}

RankBoard::End RankBoard::end_of(int rank) const {
  const Content::Slot* const slot = content_->slot(rank);
  return slot == nullptr ? End{} : End{slot->step, slot->blamed, slot->why.get()};
}

bool RankBoard::pause_requested() const noexcept {
  return content_->pause;
}

void RankBoard::request_pause() noexcept {
  content_->pause = true;
}

void RankBoard::tell_change(const NodeChange& change) {
  content_->change.ranks_before = change.ranks_before;
  content_->change.ranks = change.ranks;
  content_->change.left_out.set(change.left_out);
  content_->change.came.set(change.came);
  content_->change.told = true;
}

std::optional<NodeChange> RankBoard::take_change() {
  const Content::Change& change = content_->change;
  if (!content_->change.told.exchange(false)) return std::nullopt;
  return NodeChange{change.ranks_before, change.ranks, change.left_out.get(), change.came.get()};
}

void RankBoard::begin_generation() {
  content_->pause = false;
  for (int rank = 0; rank < content_->ranks; ++rank) {
    Content::Slot& slot = *content_->slot(rank);
    slot.step = 0;
    slot.blamed = -1;
    slot.why.set("");
  }
}

void RankBoard::begin_generation(const RestartReason& reason) {
  begin_generation();
  Content::Reason& told = content_->reason[content_->reasons % most_reasons];
  told.restart = reason.restart;
  told.most = reason.most;
  told.rank = reason.rank;
  told.step = reason.step;
  told.what.set(reason.what);
  ++content_->reasons;
}

std::vector<RestartReason> RankBoard::take_reasons() {
  std::vector<RestartReason> reasons;
  const std::uint64_t end = content_->reasons;
  const std::uint64_t oldest = end > most_reasons ? end - most_reasons : 0;
  for (std::uint64_t number = std::max(content_->taken.load(), oldest); number < end; ++number) {
    const Content::Reason& reason = content_->reason[number % most_reasons];
    reasons.push_back({reason.restart, reason.most, reason.rank, reason.step, reason.what.get()});
  }
  content_->taken = end;
  return reasons;
}

}  // namespace consist
