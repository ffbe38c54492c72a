// The exit statuses of `consist`. 128 + n: ended by signal n.
#pragma once

namespace consist {

inline constexpr int exit_failed = 1;  ///< something went wrong on the way: files, system, divergence
inline constexpr int exit_usage = 2;   ///< refused before anything started: the command line asks for what cannot be
inline constexpr int exit_peer_failed =
    3;  ///< of a rank that is well but lost another one; a launcher returns the other one's status instead
inline constexpr int exit_paused = 4;     ///< of a rank that ended in good order so that more ranks go on; a launcher starts them
inline constexpr int exit_unclear = 3;    ///< of consist verdict --slower: it cannot be told
inline constexpr int exit_stopped = 130;  ///< a signal (SIGINT, SIGTERM or SIGHUP) asked for the end, and it came in good order

}  // namespace consist
