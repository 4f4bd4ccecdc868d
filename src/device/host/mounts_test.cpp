#include "device/host/mounts.h"

#include <gtest/gtest.h>

namespace redline::device {
namespace {

constexpr const char* kTable =
    "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n"
    "25 27 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=10k\n"
    "40 27 8:1 /data /mnt/my\\040data rw shared:1 master:2 - xfs /dev/sda1 rw\n"
    "too short\n"
    "41 27 nonsense / /x rw - ext4 /dev/sdb rw\n"
    "42 25 0:99 / /dev/shm rw - tmpfs second rw\n";

TEST(Mounts, ParsesOptionalFieldsAndEscapes) {
  const auto mounts = parse_mountinfo(kTable);
  ASSERT_EQ(mounts.size(), 4U);
  EXPECT_EQ(mounts[0].major, 254);
  EXPECT_EQ(mounts[0].source, "/dev/vda");
  EXPECT_EQ(mounts[2].mount_point, "/mnt/my data");
  EXPECT_EQ(mounts[2].root, "/data");
  EXPECT_EQ(mounts[2].fstype, "xfs");
  EXPECT_EQ(mounts[2].super_options, "rw");
}

TEST(Mounts, FindsTheMountOfAPath) {
  const auto mounts = parse_mountinfo(kTable);
  const struct {
    const char* path;
    const char* source;
  } cases[] = {
      {"/", "/dev/vda"},
      {"/home/user/x", "/dev/vda"},
      {"/dev/shm", "second"},  // the later mount covers the earlier
      {"/dev/shm/a/b", "second"},
      {"/dev/shmoo", "/dev/vda"},  // a prefix of letters is not a prefix of folders
      {"/mnt/my data/set", "/dev/sda1"},
      {"/mnt/../mnt/my data", "/dev/sda1"},
  };
  for (const auto& c : cases) {
    const Mount* mount = mount_of(mounts, c.path);
    ASSERT_NE(mount, nullptr) << c.path;
    EXPECT_EQ(mount->source, c.source) << c.path;
  }
  EXPECT_EQ(mount_of({}, "/x"), nullptr);
}

}  // namespace
}  // namespace redline::device
