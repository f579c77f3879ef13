"""Files that survive a kill, a full disk and a reboot."""
