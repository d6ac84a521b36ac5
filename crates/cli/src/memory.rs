//! How the allocator keeps what programs that run for long have freed.

/// Has all threads of this process share two heaps. glibc makes up to eight of them for each processor, and each keeps what it
/// once had: a server, whose work goes from one of many threads to the next, would keep in all what it needs in one. Comes before
/// the first thread is started.
pub(crate) fn share_heaps() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        #[expect(unsafe_code, reason = "no safe library sets options of the allocator")]
        // SAFETY: it sets a number, and no other thread runs yet.
        let set = unsafe { libc::mallopt(libc::M_ARENA_MAX, HEAPS) };
        debug_assert_eq!(set, 1, "the allocator knows this option");
    }
}

/// As many as workers of the server, which allocate the most.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const HEAPS: i32 = 2;
