package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/status"
)

// reportTimeout bounds a Report: an operator asks because something does not answer.
const reportTimeout = 3 * time.Second

// Report is the state of etcd and of the elections in it, for people.
type Report struct {
	Members []Member `json:"members"`
	// Elections are those with a leader or a candidate, by name.
	Elections []Election `json:"elections"`
	// Error is why the elections could not be read.
	Error string `json:"error,omitempty"`
}

// Member is an etcd server that a Client has as an endpoint.
type Member struct {
	Endpoint string `json:"endpoint"`
	Version  string `json:"version,omitempty"`
	Leader   bool   `json:"leader"`
	// Size is the size of the database file, InUse the part of it with data, and Quota the size
	// at which writes are refused (0 before etcd 3.6), in bytes.
	Size  int64 `json:"size"`
	InUse int64 `json:"inUse"`
	Quota int64 `json:"quota"`
	// Milliseconds is how long the member took to answer.
	Milliseconds float64 `json:"milliseconds"`
	// Alarms are those that the member reports, and that it has no leader.
	Alarms []string `json:"alarms,omitempty"`
	// Error is why nothing is known of the member.
	Error string `json:"error,omitempty"`
}

// Election is one for Campaign.
type Election struct {
	Name   string `json:"name"`
	Leader string `json:"leader"`
	// Waiting is how many processes would follow the leader.
	Waiting int `json:"waiting"`
}

// Report asks every member, and reads the elections. It takes 3 s at most.
func (c *Client) Report(ctx context.Context) Report {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	endpoints := c.etcd.Endpoints()
	r := Report{Members: make([]Member, len(endpoints))}
	var members sync.WaitGroup
	for i, endpoint := range endpoints {
		members.Go(func() { r.Members[i] = c.member(ctx, endpoint) })
	}
	var err error
	if r.Elections, err = c.elections(ctx); err != nil {
		r.Error = err.Error()
	}
	members.Wait()
	return r
}

func (c *Client) member(ctx context.Context, endpoint string) Member {
	start := time.Now()
	s, err := c.etcd.Status(ctx, endpoint)
	switch {
	case ctx.Err() != nil:
		return Member{Endpoint: endpoint, Error: fmt.Sprintf("no answer within %v", reportTimeout)}
	case err != nil:
		return Member{Endpoint: endpoint, Error: status.Convert(err).Message()}
	}
	return Member{
		Endpoint: endpoint, Version: s.Version, Leader: s.Leader != 0 && s.Leader == s.Header.GetMemberId(),
		Size: s.DbSize, InUse: s.DbSizeInUse, Quota: s.DbSizeQuota, Alarms: s.Errors,
		Milliseconds: float64(time.Since(start).Microseconds()) / 1000,
	}
}

// elections reads the candidates of all elections. Their leader is the first candidate.
func (c *Client) elections(ctx context.Context) (all []Election, err error) {
	root := electionRoot + c.prefix
	got, err := c.etcd.Get(ctx, root, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return nil, err
	}
	at := map[string]int{}
	for _, kv := range got.Kvs {
		name, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), root), "/")
		if i, known := at[name]; known {
			all[i].Waiting++
			continue
		}
		at[name] = len(all)
		all = append(all, Election{Name: name, Leader: string(kv.Value)})
	}
	slices.SortFunc(all, func(a, b Election) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}
