package controllers

import (
	"bufio"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"portico/discovery"
	"portico/resource/loop"
)

const (
	// streamSilence is after what silence the discovery stream is broken: three of its heartbeats.
	streamSilence = 30 * time.Second
	// streamPause is the pause before the discovery stream is opened again.
	streamPause = time.Second
)

// absentResources are the groups of the resources that quotas name and no server has, by the key of the quota. The zero
// value has none. Safe for concurrent use.
type absentResources struct {
	mu     sync.Mutex
	groups map[string][]string
	some   loop.Signal // set when a quota was added
}

// set replaces the groups of a quota, and reports whether it had none before.
func (a *absentResources) set(quota string, groups []string) (isNew bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(groups) == 0 {
		delete(a.groups, quota)
		return false
	}
	if a.groups == nil {
		a.groups = map[string][]string{}
	}
	isNew = a.groups[quota] == nil
	a.groups[quota] = groups
	a.some.Set()
	return isNew
}

// of returns the quotas that name an absent resource of one of some groups.
func (a *absentResources) of(groups map[string]bool) (quotas []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for quota, absent := range a.groups {
		if slices.ContainsFunc(absent, func(group string) bool { return groups[group] }) {
			quotas = append(quotas, quota)
		}
	}
	return quotas
}

func (a *absentResources) empty() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.groups) == 0
}

// awaitAbsent queues quotas that name absent resources when the discovery of their group changes, until ctx ends. It
// follows discovery only while there are such quotas.
func (c *quotaController) awaitAbsent(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.absent.some.C():
		}
		for !c.absent.empty() {
			if err := c.followDiscovery(ctx); err != nil && ctx.Err() == nil {
				c.env.Log.Debug("the discovery stream of the gateway ended", "err", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(streamPause):
			}
		}
	}
}

// followDiscovery reads the discovery stream of the gateway (docs/wire.md 2.6) until it ends, or no resource is absent.
func (c *quotaController) followDiscovery(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(streamSilence, cancel)
	defer silence.Stop()
	body, err := c.env.Client.Discovery().RESTClient().Get().AbsPath("/apis").Param("watch", "true").
		SetHeader("Accept", discovery.AggregatedJSON).Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	lines := bufio.NewReader(body)
	changed := map[string]bool{}
	for !c.absent.empty() {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		silence.Reset(streamSilence)
		var event struct {
			Type   watch.EventType
			Object struct{ Metadata struct{ Name string } }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return err
		}
		if event.Type != watch.Bookmark {
			changed[event.Object.Metadata.Name] = true
			continue
		}
		for _, quota := range c.absent.of(changed) {
			c.queue.Add(quota)
		}
		changed = map[string]bool{}
	}
	return nil
}
