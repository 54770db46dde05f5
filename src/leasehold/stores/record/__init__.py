"""The record: how etcd and ZooKeeper keep a resource. One protocol for both, which each of them carries out."""
