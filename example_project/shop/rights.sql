-- Who may do what with the tables of the shop and of Django. The rights to the queue are those of the roles that
-- sql/roles.sql makes, so this comes after it, and like it after each migrate. It may be repeated:
--   psql -f sql/roles.sql -f example_project/shop/rights.sql
-- Only shop_owner can make, alter or drop anything.
\set ON_ERROR_STOP on
begin;

-- Who runs qdoctor sees what the other logins do.
grant pg_read_all_stats to shop_owner;

-- The site places orders, takes messages in the warehouse, and serves the admin with its actions. A site without the admin
-- would be a pgqueue_producer; this one has customers and staff in one process, and so the rights of both.
grant pgqueue_admin to shop_web;
grant select, insert, update, delete on shop_product, shop_order, shop_orderline, shop_orderjob, shop_receipt,
    shop_courierbooking, shop_quote, shop_parcel, shop_salesreport to shop_web;
grant select, insert, update, delete on auth_user, auth_group, auth_user_groups, auth_user_user_permissions,
    auth_group_permissions, django_session to shop_web;
-- What somebody did in the admin is written down, and not changed; it goes with the user who did it.
grant select, insert, delete on django_admin_log to shop_web;
grant select on auth_permission, django_content_type, django_migrations to shop_web;

-- What the tasks of shop/tasks.py read and write.
grant pgqueue_consumer to shop_worker;
grant select on shop_product, shop_order, shop_orderline to shop_worker;
grant select, insert on shop_receipt, shop_courierbooking, shop_salesreport to shop_worker;
grant select, insert, update on shop_quote to shop_worker;
commit;
