package etcd

import (
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

func TestPager(t *testing.T) {
	for name, tt := range map[string]struct {
		size  int // of each value
		limit int64
		want  []int64
	}{
		"small":       {100, 0, []int64{100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000}},
		"usual":       {3500, 0, []int64{100, 200, 400, 800, 1600, 2396, 2396}},
		"large":       {1 << 20, 0, []int64{100, 8, 8}},
		"enormous":    {20 << 20, 0, []int64{100, 1, 1}},
		"few wanted":  {3500, 50, []int64{50, 50}},
		"many wanted": {3500, 500, []int64{100, 200, 400, 500}},
		"empty":       {0, 0, []int64{100, 200}},
	} {
		t.Run(name, func(t *testing.T) {
			var p pager
			value := make([]byte, tt.size)
			for i, want := range tt.want {
				got := p.next(tt.limit)
				if got != want {
					t.Errorf("page %d holds %d keys, want %d", i, got, want)
				}
				kvs := make([]*mvccpb.KeyValue, got)
				for i := range kvs {
					kvs[i] = &mvccpb.KeyValue{Value: value}
				}
				p.took(kvs)
			}
		})
	}
}
