// Confines a process that reads hostile bytes: limits, namespaces, Landlock, and a seccomp filter.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/// Whether this program is built with a sanitizer, whose runtime needs memory and system calls that a confined process does not have.
extern const bool todoku_is_sanitized;

/// Makes this process the child of `parent` in every respect: closes every descriptor from `first` on (-1: none), gives the process the
/// name `name` (at most 15 bytes), and asks the kernel to kill it when the thread that started it ends. Returns false if the parent is gone
/// already.
bool todoku_become_child(int first, const char *name, pid_t parent);

/// Most of what a confined process may use.
struct todoku_bounds {
  /// Bytes of address space, beside those that are mapped now.
  uint64_t memory;
  /// Seconds of processor time.
  uint64_t seconds;
  /// Bytes of one file.
  uint64_t file_size;
  /// Open descriptors.
  uint64_t descriptors;
};

/// What is in force, as bits. A kernel, or a rule of the distribution, may lack some.
enum todoku_confinement {
  /// setrlimit(2): memory, processor time, size of a file, descriptors; no core file, no further process.
  TODOKU_CONFINED_LIMITS = 1,
  /// seccomp(2): only the calls that unpacking needs. No socket, no program, no other process, no executable memory.
  TODOKU_CONFINED_CALLS = 2,
  /// landlock(7): no file is opened, made or removed outside of the folder, and none is read or run in it.
  TODOKU_CONFINED_FILES = 4,
  /// chroot(2) in a user namespace of its own: the folder is the root.
  TODOKU_CONFINED_ROOT = 8,
  /// A network namespace of its own, without an interface that is up.
  TODOKU_CONFINED_NETWORK = 16,
};

/// Confines this process, which must have one thread, to the open folder `folder`. Every library must be loaded before. A descriptor that
/// is open stays usable. Returns the bits of what is in force.
unsigned todoku_confine(int folder, pid_t parent, const struct todoku_bounds *bounds);
