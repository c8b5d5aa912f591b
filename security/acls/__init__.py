"""Authorization by ACLs as Kafka's AclAuthorizer: the model, its nodes and its decisions; no sockets, no sessions.

`acl_types` has the model, `acl_nodes` its form in the metadata tree, `authorizer` decides, `acl_requests` answers
Create-, Delete- and DescribeAcls, and `api_checks` says what each API checks.
"""
