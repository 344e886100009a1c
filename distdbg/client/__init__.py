"""The other end of the agents' API: finds the agents of running jobs, and asks them.

protocol         requests and answers as lines of JSON, for both ends
agent_client     a connection to one agent
live_runs        the running jobs of this host
addresses, ways  addresses of agents on the command line, and connections to them
ssh              connects to an agent through ssh
live_feed        the data of a dashboard for a running job;  feed: its parts

Who imports it needs no agent in its process: nothing here imports one.
"""
