package doctor

import (
	"context"

	"portico/resource/etcd"
)

// judged returns a check of what the gateway reports of etcd.
func judged(judge func(r *etcd.Report) finding) func(context.Context, *target) finding {
	return func(_ context.Context, t *target) finding {
		i, why, read := t.installation()
		if !read {
			return why
		}
		return judge(&i.Etcd)
	}
}

var (
	etcdMembers   = judged(judgeMembers)
	etcdAlarms    = judged(judgeAlarms)
	etcdSpace     = judged(judgeSpace)
	etcdFragments = judged(judgeFragments)
	etcdLatency   = judged(judgeLatency)
)

func judgeMembers(r *etcd.Report) finding {
	var w worst
	leading, answered := 0, 0
	versions := map[string]bool{}
	for _, m := range r.Members {
		if m.Error != "" {
			w.fail("%s: %s", m.Endpoint, m.Error)
			continue
		}
		answered++
		versions[m.Version] = true
		if m.Leader {
			leading++
		}
	}
	switch {
	case leading > 1:
		w.fail("%d members lead: they are not of one etcd", leading)
	// A gateway may be given some of the members only.
	case leading == 0 && answered == len(r.Members) && answered > 1:
		w.warn("none of the %d members that the gateway has leads", answered)
	}
	if len(versions) > 1 {
		w.warn("members have %d versions", len(versions))
	}
	if n := len(r.Members); n%2 == 0 && n > 0 {
		w.warn("%d members survive the loss of no more than %d would", n, n-1)
	}
	return w.finding("members that answer: %d", answered)
}

func judgeAlarms(r *etcd.Report) finding {
	var w worst
	for _, m := range r.Members {
		for _, alarm := range m.Alarms {
			w.fail("%s: %s", m.Endpoint, alarm)
		}
	}
	return w.finding("none")
}

const (
	// full is the part of the quota at which a check fails, nearlyFull the one to warn of.
	full, nearlyFull = 0.9, 0.7
)

func judgeSpace(r *etcd.Report) finding {
	var w worst
	known, answers := false, false
	for _, m := range r.Members {
		answers = answers || m.Error == ""
		if m.Quota == 0 {
			continue
		}
		known = true
		switch used := float64(m.InUse) / float64(m.Quota); {
		case used > full:
			w.fail("%s uses %d of %d MiB", m.Endpoint, m.InUse>>20, m.Quota>>20)
		case used > nearlyFull:
			w.warn("%s uses %d of %d MiB", m.Endpoint, m.InUse>>20, m.Quota>>20)
		}
	}
	switch {
	case !answers:
		return skip("no member answers")
	case !known:
		return skip("etcd does not report its quota: 3.6 and newer do")
	}
	return w.finding("less than %.0f%% of the quota", 100*nearlyFull)
}

const (
	// A file of fragmentable bytes, of which less than half is in use, is worth defragmenting.
	fragmentable = 128 << 20
	fragmented   = 0.5
)

func judgeFragments(r *etcd.Report) finding {
	var w worst
	for _, m := range r.Members {
		if m.Size > fragmentable && float64(m.InUse) < fragmented*float64(m.Size) {
			w.warn("%s uses %d of the %d MiB of its file", m.Endpoint, m.InUse>>20, m.Size>>20)
		}
	}
	return w.finding("none is worth defragmenting")
}

const (
	// slowEtcd is the time in milliseconds to warn of, slowestEtcd that at which a check fails.
	slowEtcd, slowestEtcd = 100, 1000
)

func judgeLatency(r *etcd.Report) finding {
	var w worst
	for _, m := range r.Members {
		switch {
		case m.Error != "":
		case m.Milliseconds > slowestEtcd:
			w.fail("%s answers in %.0f ms", m.Endpoint, m.Milliseconds)
		case m.Milliseconds > slowEtcd:
			w.warn("%s answers in %.0f ms", m.Endpoint, m.Milliseconds)
		}
	}
	return w.finding("all answer within %d ms", slowEtcd)
}
