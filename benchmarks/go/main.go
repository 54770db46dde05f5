// Locks of Go libraries over Redis, measured as benchmarks/foreign.py asks: peers LIBRARY ADDRESS
//
// For each line PARTIES SECONDS of standard input so many goroutines take turns on one lock for so long, after a
// warm-up, and one line of JSON is printed. With one party nobody waits: its rate is of pairs. Two holders at once are
// an error.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const (
	ttl     = 30 * time.Second
	polling = time.Millisecond
	warmUp  = 100 * time.Millisecond
	samples = 1 << 16

	connections = 70 // more than there are parties
)

type outcome struct {
	Turns    int64     `json:"turns"` // in the measured time
	Handoffs int64     `json:"handoffs"`
	Seconds  float64   `json:"seconds"`
	Most     int64     `json:"most"` // turns of a party
	Fewest   int64     `json:"fewest"`
	TookUs   []float64 `json:"took_us"` // each handoff
	Total    int64     `json:"total"`   // handoffs with those of the warm-up
}

// pair acquires and releases once, and calls inside while it holds.
type pair func(ctx context.Context, inside func()) error

func withRedislock(client *redis.Client) pair {
	locker := redislock.New(client)
	options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(polling)}
	return func(ctx context.Context, inside func()) error {
		lock, err := locker.Obtain(ctx, "redislock", ttl, options)
		if err != nil {
			return err
		}
		inside()
		return lock.Release(context.Background())
	}
}

func withRedsync(client *redis.Client) pair {
	sync := redsync.New(redsyncredis.NewPool(client))
	return func(ctx context.Context, inside func()) error {
		mutex := sync.NewMutex("redsync", redsync.WithExpiry(ttl), redsync.WithTries(1<<30), redsync.WithRetryDelay(polling))
		if err := mutex.LockContext(ctx); err != nil {
			return err
		}
		inside()
		_, err := mutex.UnlockContext(context.Background())
		return err
	}
}

// board is touched only by the holder, but for inside and the end of the measured time.
type board struct {
	inside   atomic.Int64
	broken   atomic.Int64
	measured atomic.Bool
	last     int
	released time.Time
	turns    []int64
	handoffs int64
	total    int64
	tookUs   []float64
}

func (b *board) turn(me int) {
	now := time.Now()
	if !b.inside.CompareAndSwap(0, int64(me)) {
		b.broken.Add(1)
	}
	measured := b.measured.Load()
	if measured {
		b.turns[me-1]++
	}
	if b.last != me {
		b.total++
		if measured {
			b.handoffs++
			if len(b.tookUs) < samples {
				b.tookUs = append(b.tookUs, float64(now.Sub(b.released).Nanoseconds())/1000)
			}
		}
		b.last = me
	}
	if !b.inside.CompareAndSwap(int64(me), 0) {
		b.broken.Add(1)
	}
	b.released = time.Now()
}

func run(one pair, parties int, length time.Duration) (*outcome, error) {
	scores := &board{turns: make([]int64, parties)}
	ctx, stop := context.WithCancel(context.Background())
	failed := make(chan error, parties)
	var all sync.WaitGroup
	for me := 1; me <= parties; me++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for ctx.Err() == nil {
				if err := one(ctx, func() { scores.turn(me) }); err != nil && ctx.Err() == nil {
					failed <- err
					return
				}
			}
		}()
	}
	time.Sleep(warmUp)
	began := time.Now()
	scores.measured.Store(true)
	time.Sleep(length)
	scores.measured.Store(false)
	took := time.Since(began).Seconds()
	stop()
	all.Wait()
	select {
	case err := <-failed:
		return nil, err
	default:
	}
	if broken := scores.broken.Load(); broken > 0 {
		return nil, fmt.Errorf("two parties held the lock at once, %d times", broken)
	}
	result := &outcome{Handoffs: scores.handoffs, Seconds: took, TookUs: scores.tookUs, Total: scores.total}
	sort.Slice(scores.turns, func(i, j int) bool { return scores.turns[i] < scores.turns[j] })
	result.Fewest, result.Most = scores.turns[0], scores.turns[parties-1]
	for _, turns := range scores.turns {
		result.Turns += turns
	}
	return result, nil
}

func main() {
	if err := report(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func report(arguments []string) error {
	if len(arguments) != 2 {
		return fmt.Errorf("usage: peers LIBRARY ADDRESS")
	}
	libraries := map[string]func(*redis.Client) pair{"redislock": withRedislock, "redsync": withRedsync}
	open, known := libraries[arguments[0]]
	if !known {
		return fmt.Errorf("no such library: %s", arguments[0])
	}
	client := redis.NewClient(&redis.Options{Addr: arguments[1], PoolSize: connections})
	defer client.Close()
	one, lines := open(client), bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var parties int
		var seconds float64
		if _, err := fmt.Sscan(lines.Text(), &parties, &seconds); err != nil {
			return err
		}
		result, err := run(one, parties, time.Duration(seconds*float64(time.Second)))
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
			return err
		}
	}
	return lines.Err()
}
