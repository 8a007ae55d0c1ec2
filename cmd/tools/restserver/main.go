// Command restserver is a small REST server without Kubernetes discovery: it keeps pets and
// their toys in memory, and its framework (huma) derives its OpenAPI 3.1 document from its Go
// types. The end-to-end tests run it behind Portico. It is in the module of the test tools, so
// that the versions of its dependencies do not change those of Portico.
//
// It lives in the module of the test tools, so that the versions that its
// framework asks for do not move Portico's.
//
// Runs in: tests.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8081", "host:port to listen on")
	prefix := flag.String("prefix", "", "path that everything is below")
	flag.Parse()
	mux := http.NewServeMux()
	newShop().register(humago.NewWithPrefix(mux, *prefix, huma.DefaultConfig("Pet shop", "1.0.0")), *prefix)
	if err := http.ListenAndServe(*listen, mux); err != nil {
		fmt.Fprintln(os.Stderr, "restserver: "+err.Error())
		os.Exit(1)
	}
}

// Pet is what the shop sells.
type Pet struct {
	ID   int    `json:"id" readOnly:"true" doc:"Number that the shop gave it"`
	Name string `json:"name" minLength:"1" doc:"What it is called"`
	Kind string `json:"kind,omitempty" enum:"cat,dog,parrot" doc:"What it is"`
}

// Toy belongs to a pet.
type Toy struct {
	Name string `json:"name" doc:"What it is"`
}

type shop struct {
	mu   sync.Mutex
	last int
	pets map[int]Pet
	toys map[int][]Toy
}

func newShop() *shop { return &shop{pets: map[int]Pet{}, toys: map[int][]Toy{}} }

type (
	byID struct {
		ID int `path:"id" doc:"Number of the pet"`
	}
	onePet  struct{ Body Pet }
	allPets struct{ Body []Pet }
	allToys struct{ Body []Toy }
	created struct {
		Location string `header:"Location"`
		Body     Pet
	}
	whoAsks struct {
		Body struct {
			User   string `json:"user"`
			Prefix string `json:"prefix"`
		}
	}
)

func (s *shop) register(api huma.API, prefix string) {
	huma.Get(api, "/pets", func(context.Context, *struct{}) (*allPets, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return &allPets{slices.SortedFunc(maps.Values(s.pets), func(a, b Pet) int { return cmp.Compare(a.ID, b.ID) })}, nil
	})
	huma.Register(api, huma.Operation{Method: http.MethodPost, Path: "/pets", DefaultStatus: http.StatusCreated, OperationID: "add-pet"},
		func(_ context.Context, in *onePet) (*created, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.last++
			in.Body.ID = s.last
			s.pets[s.last] = in.Body
			return &created{prefix + "/pets/" + strconv.Itoa(s.last), in.Body}, nil
		})
	huma.Get(api, "/pets/{id}", func(_ context.Context, in *byID) (*onePet, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		pet, ok := s.pets[in.ID]
		if !ok {
			return nil, huma.Error404NotFound("no such pet")
		}
		return &onePet{pet}, nil
	})
	huma.Delete(api, "/pets/{id}", func(_ context.Context, in *byID) (*struct{}, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.pets, in.ID)
		return nil, nil
	})
	huma.Get(api, "/pets/{id}/toys", func(_ context.Context, in *byID) (*allToys, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return &allToys{append([]Toy{}, s.toys[in.ID]...)}, nil
	})
	huma.Get(api, "/whoami", func(_ context.Context, in *struct {
		User   string `header:"X-Remote-User"`
		Prefix string `header:"X-Forwarded-Prefix"`
	}) (*whoAsks, error) {
		out := &whoAsks{}
		out.Body.User, out.Body.Prefix = in.User, in.Prefix
		return out, nil
	})
}
