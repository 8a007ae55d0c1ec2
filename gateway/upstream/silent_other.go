//go:build !linux

package upstream

import "time"

func setUserTimeout(uintptr, time.Duration) {}

func queued(uintptr) int { return 0 }
